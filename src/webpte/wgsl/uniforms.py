"""Uniform blocks declared once: the class yields both the WGSL struct and the bytes.

    class Scale(Uniforms):
        columns: u32
        factor: f32

Field order is the order of declaration. Every block starts with `threads`, the number of invocations that have work.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

SLOT_BYTES = 256  # one parameter block; also WebGPU's default uniform offset alignment


class LiveInt(NamedTuple):
    """An integer a kernel reads while it runs: a literal (slot -1), or a slot of the SymInt block."""

    value: int
    slot: int


class _Wgsl(NamedTuple):
    type: str
    format: str  # struct code, with the count in front if the field holds several values
    align: int
    values: int = 1


u32 = Annotated[int, _Wgsl("u32", "I", 4)]
i32 = Annotated[int, _Wgsl("i32", "i", 4)]
f32 = Annotated[float, _Wgsl("f32", "f", 4)]
# Sizes or strides of up to eight dims. Uniform arrays have a stride of 16 bytes, so two vec4 it is.
dims8 = Annotated[tuple[int, ...], _Wgsl("array<vec4<u32>, 2>", "8I", 16, 8)]
dims4 = Annotated[tuple[int, ...], _Wgsl("array<vec4<u32>, 1>", "4I", 16, 4)]  # if four suffice
Live = Annotated[LiveInt, _Wgsl("vec2<i32>", "2i", 8, 2)]


def words(quads: int) -> Any:
    """Return a field of up to 4 * `quads` signed words."""
    return Annotated[tuple[int, ...], _Wgsl(f"array<vec4<i32>, {quads}>", f"{4 * quads}i", 16, 4 * quads)]


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


class Uniforms:
    """Base of parameter blocks. Construct with keyword arguments; `pack(threads)` gives the bytes."""

    _fields: ClassVar[tuple[tuple[str, _Wgsl], ...]] = ()
    _struct: ClassVar[struct.Struct] = struct.Struct("<I")
    wgsl: ClassVar[str] = "struct Params {\n    threads: u32,\n}"

    def __init_subclass__(cls) -> None:
        fields = []
        for name, hint in get_type_hints(cls, include_extras=True).items():  # fields of a base class come first
            meta = getattr(hint, "__metadata__", None)
            if meta:
                fields.append((name, meta[0]))
        cls._fields = tuple(fields)
        codes, offset = "<I", 4
        lines = ["    threads: u32,"]
        for name, kind in fields:
            start = _align(offset, kind.align)
            codes += "x" * (start - offset) + kind.format
            offset = start + struct.calcsize("<" + kind.format)
            lines.append(f"    {name}: {kind.type},")
        if offset > SLOT_BYTES:
            raise TypeError(f"{cls.__name__} needs {offset} bytes; a parameter block has {SLOT_BYTES}")
        cls._struct = struct.Struct(codes + "x" * (_align(offset, 16) - offset))
        cls.wgsl = "struct Params {\n" + "\n".join(lines) + "\n}"

    def __init__(self, **values: Any) -> None:
        for name, _ in self._fields:
            try:
                setattr(self, name, values.pop(name))
            except KeyError:
                raise TypeError(f"{type(self).__name__} lacks a value for {name}") from None
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    def pack(self, threads: int) -> bytes:
        flat: list[float] = [threads]
        for name, kind in self._fields:
            value = getattr(self, name)
            if kind.values == 1:
                flat.append(value)
            else:
                flat.extend(value)
                flat.extend([0] * (kind.values - len(value)))
        return self._struct.pack(*flat)

    @classmethod
    def unpack(cls, block: bytes) -> dict[str, Any]:
        """Return the fields of a packed block, for printed plans."""
        flat = list(cls._struct.unpack(block))
        out: dict[str, Any] = {"threads": flat.pop(0)}
        for name, kind in cls._fields:
            taken, flat = flat[: kind.values], flat[kind.values :]
            out[name] = taken[0] if kind.values == 1 else tuple(taken)
        return out
