"""Values, constants and calls as JSON, for the inputs and outputs of a method and for CPU kernels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..budgets import limit
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
    numel,
)
from ..graph.expressions import number_from_json, number_to_json

MAX_TEXT_CHARS = 4096  # of a string that is shown to people
MAX_INT = limit("tensor bytes")


def json_field(data: Any, name: str) -> Any:
    """Return a required field of an object."""
    if not isinstance(data, dict) or name not in data:
        raise FormatError(argument=name, expected="a value", got="no such field", code="missing_field")
    return data[name]


def json_int(data: Any, what: str, low: int = 0, high: int = MAX_INT) -> int:
    """Return an integer from `low` to `high`, both included."""
    if not isinstance(data, int) or isinstance(data, bool) or not low <= data <= high:
        raise _invalid(what, f"an integer from {low} to {high}", data)
    return data


def json_ints(data: Any, what: str, low: int = 0, high: int = MAX_INT) -> tuple[int, ...]:
    """Return a list of integers from `low` to `high`."""
    return tuple(json_int(item, what, low, high) for item in json_list(data, what))


def json_list(data: Any, what: str, count: int | None = None) -> list[Any]:
    """Return a list, of `count` items unless that is None."""
    if not isinstance(data, list) or (count is not None and len(data) != count):
        raise _invalid(what, "a list" if count is None else f"a list of {count} items", data)
    return data


def json_bool(data: Any, what: str) -> bool:
    """Return a boolean."""
    if not isinstance(data, bool):
        raise _invalid(what, "true or false", data)
    return data


def json_str(data: Any, what: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a string of printable characters."""
    if not isinstance(data, str) or len(data) > max_chars or not data.isprintable():
        raise _invalid(what, f"a string of at most {max_chars} printable characters", data)
    return data


def json_numbered(data: Any, what: str, high: int) -> Mapping[int, Any]:
    """Return the items of an object whose names are integers up to `high`."""
    if not isinstance(data, dict):
        raise _invalid(what, "an object", data)
    items = {}
    for name, item in data.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 18 and int(name) <= high):
            raise _invalid(f"a name in {what}", f"an integer up to {high}", name)
        items[int(name)] = item
    return items


def check_format(path: str, data: Any, name: str, version: int, remake: str) -> None:
    """Raise FormatError unless a document has this format and version. `remake`: how to write an older one again."""
    if not isinstance(data, dict) or data.get("format") != name:
        raise FormatError(f"{path}: expected the format {name!r}", code="bad_magic")
    actual = data.get("version")
    if actual != version:
        older = isinstance(actual, int) and actual < version
        raise FormatError(
            argument=path,
            expected=f"a {name} of version {version}",
            got=f"version {ascii(actual)[:20]}",
            code="unknown_version",
            hint=f"Write it again with this webpte: {remake}."
            if older
            else "Use the webpte that wrote it, or a later one.",
        )


def _invalid(what: str, expected: str, data: Any) -> FormatError:
    text = ascii(data)
    got = text if len(text) <= 60 else f"{text[:60]}..."
    return FormatError(argument=what, expected=expected, got=got, code="invalid_field")


_DTYPES = {dtype.short: dtype for dtype in DType}
_VALUES, _CALLS = limit("values") - 1, limit("calls") - 1  # the largest numbers that name one
_LIVE: dict[str, type[SymInt] | type[SymFloat] | type[SymBool] | type[Null]] = {
    "symint": SymInt,
    "symfloat": SymFloat,
    "symbool": SymBool,
    "null": Null,
}
_SINGLE: dict[str, Any] = {"int": Int, "double": Double, "bool": Bool, "string": String}
_LISTS: dict[str, tuple[str, Any]] = {"ints": ("int", IntList), "doubles": ("double", DoubleList)}
_LISTS["bools"] = ("bool", BoolList)


DERIVED_FILE = "constants.bin"  # in the folder of a plan


class Sources(Protocol):
    """The files of constants, which a plan's JSON refers to by number."""

    def constant(self, constant: Constant, dtype: DType) -> dict[str, Any]:
        """Return the JSON of a constant and the dtype that it is used in."""

    def listed(self) -> list[dict[str, Any]]:
        """Return the files in the order of their numbers."""


class Files:
    """Constants in the program's files. Data that no file has is collected in one further file."""

    def __init__(self, files: Sequence[MappedFile] = ()) -> None:
        self.files: list[MappedFile | None] = list(files)  # None is the file of derived data
        self._derived: dict[MappedFile, int] = {}  # where each begins
        self._derived_size = 0

    def place(self, span: Span) -> list[int]:
        """Return the number of a span's file, and its offset and size."""
        if not span.file.derived:
            return [self._number(span.file), span.offset, span.size]
        if span.file not in self._derived:
            self._derived[span.file] = self._derived_size
            self._derived_size += span.file.size
        return [self._number(None), self._derived[span.file] + span.offset, span.size]

    def _number(self, file: MappedFile | None) -> int:
        for number, listed in enumerate(self.files):
            if listed is file:
                return number
        self.files.append(file)
        return len(self.files) - 1

    def file(self, number: int) -> MappedFile:
        """Return a file of the program by its number."""
        file = self.files[number]
        assert file is not None
        return file

    def derived_data(self) -> bytes:
        """Return the contents of the further file."""
        return b"".join(file.view(0, file.size) for file in self._derived)

    def constant(self, constant: Constant, dtype: DType) -> dict[str, Any]:
        return {
            "name": constant.name,
            "stored_dtype": constant.dtype.short,
            "spans": [self.place(span) for span in constant.spans],
        }

    def listed(self) -> list[dict[str, Any]]:
        return [self._listed(file) for file in self.files]

    def _listed(self, file: MappedFile | None) -> dict[str, Any]:
        if file is None:
            data = self.derived_data()
            return {"name": DERIVED_FILE, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return {"name": _file_name(file.path), "bytes": file.size, "sha256": file.sha256()}


def _file_name(path: str) -> str:
    """Return the file name of a path in printable characters."""
    return "".join(c if c.isprintable() else "?" for c in os.path.basename(path))


def dtype_from_json(name: Any) -> DType:
    if not isinstance(name, str) or name not in _DTYPES:
        raise FormatError(f"{ascii(name)[:60]} is not a dtype", code="unknown_dtype")
    return _DTYPES[name]


def constant_from_json(data: Any, files: Files) -> Constant:
    spans = [_span(item, files) for item in json_list(json_field(data, "spans"), "spans of a constant")]
    if not spans:
        raise FormatError("a constant has no data")
    dtype = dtype_from_json(json_field(data, "stored_dtype"))
    constant = Constant(spans[0], dtype, json_str(json_field(data, "name"), "the name of a constant"), tuple(spans[1:]))
    if constant.nbytes % dtype.itemsize:
        raise FormatError(
            f"constant {constant.name} has {constant.nbytes} bytes, which is not a multiple of {dtype.itemsize}"
        )
    return constant


def _span(data: Any, files: Files) -> Span:
    file, offset, size = json_ints(json_list(data, "a span", 3), "a number of a span")
    return Span(files.file(json_int(file, "the file of a span", high=len(files.files) - 1)), offset, size)


def value_to_json(value: Value, sources: Sources) -> dict[str, Any]:
    if isinstance(value, TensorSpec):
        constant = value.constant
        return {
            "kind": "tensor",
            "dtype": value.dtype.short,
            "host_dtype": value.host_dtype.short,
            "dims": list(value.dims),
            "dynamic": value.dynamic,
            "mutable": value.mutable,
            "constant": None if constant is None else sources.constant(constant, constant.dtype),
        }
    if isinstance(value, ValueList):
        return {"kind": "list", "ids": list(value.ids)}
    for kind, single in _SINGLE.items():
        if isinstance(value, single):
            return {"kind": kind, "value": _item_to_json(value.value)}
    for kind, (_, several) in _LISTS.items():
        if isinstance(value, several):
            return {"kind": kind, "values": [_item_to_json(item) for item in value.values]}
    return {"kind": next(kind for kind, live in _LIVE.items() if isinstance(value, live))}


def value_from_json(data: Any, files: Files) -> Value:
    kind = json_field(data, "kind")
    if kind == "tensor":
        return _tensor_from_json(data, files)
    if kind == "list":
        return ValueList(json_ints(json_field(data, "ids"), "a member of a list", high=_VALUES))
    if kind in _SINGLE:
        single: Value = _SINGLE[kind](_item_from_json(json_field(data, "value"), kind))
        return single
    if kind in _LISTS:
        item, several = _LISTS[kind]
        listed: Value = several(
            tuple(_item_from_json(i, item) for i in json_list(json_field(data, "values"), "a list"))
        )
        return listed
    if kind not in _LIVE:
        raise FormatError(f"{ascii(kind)[:60]} is not a kind of value")
    return _LIVE[kind]()


def _tensor_from_json(data: Any, files: Files) -> TensorSpec:
    constant = json_field(data, "constant")
    spec = TensorSpec(
        dtype_from_json(json_field(data, "dtype")),
        json_ints(json_list(json_field(data, "dims"), "dims")[: limit("dims") + 1], "a dim"),
        dtype_from_json(json_field(data, "host_dtype")),
        json_bool(json_field(data, "dynamic"), "dynamic"),
        None if constant is None else constant_from_json(constant, files),
        json_bool(json_field(data, "mutable"), "mutable"),
    )
    if spec.constant is not None and spec.constant.nbytes != numel(spec.dims) * spec.constant.dtype.itemsize:
        raise FormatError(f"constant {spec.constant.name}: expected the bytes of {spec}, got {spec.constant.nbytes}")
    return spec


def _item_to_json(item: Any) -> Any:
    return number_to_json(item) if isinstance(item, float) else item


def _item_from_json(data: Any, kind: str) -> Any:
    if kind == "bool":
        return json_bool(data, "a literal")
    if kind == "string":
        return json_str(data, "a literal")
    number = number_from_json(data)
    if kind == "int" and (not isinstance(number, int) or isinstance(data, bool)):
        raise FormatError(f"expected an integer, got {number}")
    return number if kind == "int" else float(number)


def call_to_json(call: Call) -> dict[str, Any]:
    origin = call.origin
    return {
        "name": call.name,
        "args": list(call.args),
        "outs": list(call.outs),
        "kernel": call.kernel,
        "origin": [origin.instruction, origin.delegate, origin.node],
    }


def call_from_json(data: Any) -> Call:
    args, outs = (json_ints(json_field(data, name), f"{name} of a call", high=_VALUES) for name in ("args", "outs"))
    origin = json_list(json_field(data, "origin"), "the origin of a call", 3)
    first, *inside = (None if at is None else json_int(at, "the origin of a call") for at in origin)
    if first is None:
        raise FormatError("a call has no origin")
    return Call(
        json_str(json_field(data, "name"), "the name of a call"),
        args,
        outs,
        Origin(first, *inside),
        json_bool(data["kernel"], "kernel"),
    )
