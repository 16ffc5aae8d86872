"""Integers from -8 to 7, as codes from 0 to 15. The code of an even column is in the lower half of its byte."""

from . import CodeFormat, nibbles

WAYS = frozenset({"halves", "bytes", "pairs"})
FORMAT = CodeFormat("int4", "weight_formats/int4.wgsl", 4, lambda codes: nibbles(codes) - 8, decodes=WAYS, packs=True)
