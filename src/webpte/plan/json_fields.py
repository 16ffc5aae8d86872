"""Fields of a JSON document that need not have been written by us: each is what it must be, or refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..budgets import limit
from ..errors import FormatError

TEXT = 4096  # characters of what is shown to people
MOST = limit("tensor bytes")


def field(data: Any, name: str) -> Any:
    if not isinstance(data, dict) or name not in data:
        raise FormatError(f"there is no {name!r} where one must be", code="missing_field")
    return data[name]


def whole(data: Any, what: str, low: int = 0, high: int = MOST) -> int:
    """An integer from `low` to `high`, both included."""
    if not isinstance(data, int) or isinstance(data, bool) or not low <= data <= high:
        raise FormatError(f"{what} is {_shown(data)}, not a whole number from {low} to {high}", code="invalid_field")
    return data


def wholes(data: Any, what: str, low: int = 0, high: int = MOST) -> tuple[int, ...]:
    return tuple(whole(item, what, low, high) for item in items(data, what))


def items(data: Any, what: str, count: int | None = None) -> list[Any]:
    """A list, of `count` items if that is given."""
    if not isinstance(data, list) or (count is not None and len(data) != count):
        raise FormatError(
            f"{what} is {_shown(data)}, not a list" + (f" of {count}" if count is not None else ""),
            code="invalid_field",
        )
    return data


def truth(data: Any, what: str) -> bool:
    if not isinstance(data, bool):
        raise FormatError(f"{what} is {_shown(data)}, neither true nor false", code="invalid_field")
    return data


def text(data: Any, what: str, most: int = TEXT) -> str:
    if not isinstance(data, str) or len(data) > most or not data.isprintable():
        raise FormatError(
            f"{what} is {_shown(data)}, not a text of at most {most} printable characters", code="invalid_field"
        )
    return data


def numbered(data: Any, what: str, high: int) -> Mapping[int, Any]:
    """An object whose names are numbers up to `high`."""
    if not isinstance(data, dict):
        raise FormatError(f"{what} is {_shown(data)}, not an object", code="invalid_field")
    found = {}
    for name, item in data.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 18 and int(name) <= high):
            raise FormatError(
                f"{what} has {_shown(name)} where a number up to {high} names something", code="invalid_field"
            )
        found[int(name)] = item
    return found


def _shown(data: Any) -> str:
    shown = ascii(data)
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
