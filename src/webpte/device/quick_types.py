"""Faster look-ups of C types by name.

wgpu-py asks cffi for types such as "WGPUBufferDescriptor *" by name. For each new name cffi has a C parser read every
typedef of webgpu.h again: 20 ms a name, and a second in all before the first buffer exists. A pointer to, or an array
of, a known type needs no parser.
"""

from __future__ import annotations

import re
from typing import Any

_NAMED = re.compile(r"\s*(?:struct\s+)?(\w+)(?:\s+const)?\s*((?:\*\s*)*)(?:\[(\d*)\])?\s*")
_FUNCTION = re.compile(r"\s*void\s*\(([^()]*)\)\s*")


def quicken(ffi: Any) -> None:
    """Let `ffi` find simple types without parsing. Whatever is not simple goes the usual way."""
    try:
        from cffi import model

        parser = ffi._parser
        declared, parse = parser._declarations, parser.parse_type
    except (ImportError, AttributeError):  # another cffi: slower, and just as right
        return

    def find(text: str) -> Any:
        found = _find(model, declared, text)
        return parse(text) if found is None else found

    parser.parse_type = find


def _find(model: Any, declared: dict[str, Any], text: str) -> Any:
    """The type that `text` names, as the parser would give it; None if that is not certain."""
    function = _FUNCTION.fullmatch(text)
    if function is not None:
        arguments = [_find(model, declared, argument) for argument in function[1].split(",")]
        return None if None in arguments else model.RawFunctionType(tuple(arguments), model.void_type, False)
    named = _NAMED.fullmatch(text)
    if named is None:
        return None
    name, stars, length = named.groups()
    if name == "void":
        found = model.void_type
    elif name in model.PrimitiveType.ALL_PRIMITIVE_TYPES:
        found = model.PrimitiveType(name)
    elif f"typedef {name}" in declared:
        found, _ = declared[f"typedef {name}"]
    else:
        return None
    for _ in range(stars.count("*")):
        found = model.PointerType(found)
    if length is not None:
        found = model.ArrayType(found, int(length) if length else None)
    return found
