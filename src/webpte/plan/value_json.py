"""Values, constants and calls as JSON: what a player needs at the borders of a method and for CPU kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..container import DType, MappedFile, Span
from ..errors import FormatError
from ..graph import (
    Bool,
    BoolList,
    Call,
    Constant,
    Double,
    DoubleList,
    Int,
    IntList,
    Null,
    Origin,
    String,
    SymBool,
    SymFloat,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
)

_DTYPES = {dtype.short: dtype for dtype in DType}
_LIVE: dict[str, type[SymInt] | type[SymFloat] | type[SymBool] | type[Null]] = {
    "symint": SymInt,
    "symfloat": SymFloat,
    "symbool": SymBool,
    "null": Null,
}
_SINGLE: dict[str, tuple[Any, type]] = {
    "int": (Int, int),
    "double": (Double, float),
    "bool": (Bool, bool),
    "string": (String, str),
}
_LISTS: dict[str, Any] = {"ints": IntList, "doubles": DoubleList, "bools": BoolList}


class Files:
    """The files whose bytes a plan names: by number in its JSON."""

    def __init__(self, files: Sequence[MappedFile] = ()) -> None:
        self.files = list(files)

    def number(self, file: MappedFile) -> int:
        for number, known in enumerate(self.files):
            if known is file:
                return number
        self.files.append(file)
        return len(self.files) - 1


def dtype_from_json(name: Any) -> DType:
    if name not in _DTYPES:
        raise FormatError(f"{name!r} is not a dtype")
    return _DTYPES[name]


def constant_to_json(constant: Constant, files: Files) -> dict[str, Any]:
    return {
        "name": constant.name,
        "dtype": constant.dtype.short,
        "spans": [[files.number(span.file), span.offset, span.size] for span in constant.spans],
    }


def constant_from_json(data: Mapping[str, Any], files: Files) -> Constant:
    first, *rest = (Span(files.files[file], offset, size) for file, offset, size in data["spans"])
    return Constant(first, dtype_from_json(data["dtype"]), str(data["name"]), tuple(rest))


def value_to_json(value: Value, files: Files) -> dict[str, Any]:
    if isinstance(value, TensorSpec):
        return {
            "kind": "tensor",
            "dtype": value.dtype.short,
            "host": value.host_dtype.short,
            "dims": list(value.dims),
            "dynamic": value.dynamic,
            "mutable": value.mutable,
            "constant": None if value.constant is None else constant_to_json(value.constant, files),
        }
    if isinstance(value, ValueList):
        return {"kind": "list", "ids": list(value.ids)}
    for kind, (single, _) in _SINGLE.items():
        if isinstance(value, single):
            return {"kind": kind, "value": value.value}
    for kind, several in _LISTS.items():
        if isinstance(value, several):
            return {"kind": kind, "values": list(value.values)}
    return {"kind": next(kind for kind, live in _LIVE.items() if isinstance(value, live))}


def value_from_json(data: Mapping[str, Any], files: Files) -> Value:
    kind = data["kind"]
    if kind == "tensor":
        constant = None if data["constant"] is None else constant_from_json(data["constant"], files)
        return TensorSpec(
            dtype_from_json(data["dtype"]),
            tuple(map(int, data["dims"])),
            dtype_from_json(data["host"]),
            bool(data["dynamic"]),
            constant,
            bool(data["mutable"]),
        )
    if kind == "list":
        return ValueList(tuple(map(int, data["ids"])))
    if kind in _SINGLE:
        single, convert = _SINGLE[kind]
        made: Value = single(convert(data["value"]))
        return made
    if kind in _LISTS:
        listed: Value = _LISTS[kind](tuple(data["values"]))
        return listed
    if kind not in _LIVE:
        raise FormatError(f"{kind!r} is not a kind of value")
    return _LIVE[kind]()


def call_to_json(call: Call) -> dict[str, Any]:
    origin = call.origin
    return {
        "name": call.name,
        "args": list(call.args),
        "outs": list(call.outs),
        "kernel": call.kernel,
        "origin": [origin.instruction, origin.delegate, origin.node],
    }


def call_from_json(data: Mapping[str, Any]) -> Call:
    args, outs = (tuple(map(int, data[name])) for name in ("args", "outs"))
    return Call(str(data["name"]), args, outs, Origin(*data["origin"]), bool(data["kernel"]))
