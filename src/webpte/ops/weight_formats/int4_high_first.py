"""Integers from -8 to 7, as codes from 0 to 15. The code of an even column is in the upper half of its byte."""

from . import CodeFormat, nibbles
from .int4 import WAYS

FORMAT = CodeFormat(
    "int4_high_first",
    "weight_formats/int4_high_first.wgsl",
    4,
    lambda codes: nibbles(codes, high_first=True) - 8,
    decodes=WAYS,
)
