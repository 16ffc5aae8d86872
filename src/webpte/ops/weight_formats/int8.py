"""Integers from -128 to 127."""

from . import CodeFormat

FORMAT = CodeFormat("int8", "weight_formats/int8.wgsl", 8, lambda codes: codes.view("i1"))
