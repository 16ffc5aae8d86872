"""Frozen dataclasses to JSON and back. What is read is checked field by field: a frame is believed of no one.

A dataclass is a list of its fields in their order, for most frames are tokens and should be short.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from ..errors import FormatError, InputError

Reader = Callable[[Any], Any]


def to_json(value: object) -> bytes:
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError) as error:
        raise InputError(
            f"it cannot be written as JSON: {error}; settings are not nested so deeply", code="nested_too_deeply"
        ) from error
    return text.encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if not dataclasses.is_dataclass(value):
        raise InputError(
            f"{type(value).__name__} cannot be written as JSON; settings are texts, numbers and lists",
            code="not_serializable",
        )
    kind: Any = type(value)
    return [_plain(getattr(value, name)) for name in _names(kind)]


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def from_json(kind: type, value: Any) -> Any:
    """What `to_json` has written, as far as it is of that kind."""
    return _reader(kind)(value)


@cache
def _reader(hint: Any) -> Reader:
    """Checks a value that JSON has given, and makes of it what a field is declared as."""
    arguments = get_args(hint)
    origin = get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _of_fields(hint)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _of_many(arguments[0])
    if origin is tuple:
        return _of_several(arguments)
    if origin is types.UnionType:
        (inner,) = (_reader(each) for each in arguments if each is not type(None))
        return lambda value: None if value is None else inner(value)
    if hint is Any:
        return lambda value: value
    return _of_one({float: (int, float)}.get(hint, (origin or hint,)), hint)


def _of_one(kinds: tuple[type, ...], hint: Any) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise FormatError(
                f"a frame has {type(value).__name__} where it says {getattr(hint, '__name__', hint)}",
                code="invalid_field",
            )
        return value

    return read


def _of_many(inner: Any) -> Reader:
    one = _reader(inner)
    return lambda value: tuple(one(each) for each in _listed(value))


def _of_several(inner: tuple[Any, ...]) -> Reader:
    readers = [_reader(each) for each in inner]
    return lambda value: tuple(one(each) for one, each in zip(readers, _listed(value, len(readers)), strict=True))


def _of_fields(kind: type) -> Reader:
    hints = get_type_hints(kind)
    readers = [_reader(hints[name]) for name in _names(kind)]
    return lambda value: kind(*[r(v) for r, v in zip(readers, _listed(value, len(readers)), strict=True)])


def _listed(value: Any, count: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (count is not None and len(value) != count):
        told = "a list" if count is None else f"a list of {count}"
        raise FormatError(f"a frame has {type(value).__name__} where it says {told}", code="invalid_field")
    return value
