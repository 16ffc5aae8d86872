"""What a checkpoint says of itself is a closed world: each field is read, known to change nothing, or refused by name.

A model that is wrong by a few percent still talks, so an unknown field is never skipped. Null and empty are how a field
is left unset; no other value of an unknown one is believed, `false` and 0 included: `use_rope: false` would switch off
something that is on here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ..errors import FormatError, UnsupportedError


class Neutral(NamedTuple):
    """A field that changes what a model computes, unless its value is one of these."""

    values: tuple[Any, ...] | Callable[[Any], bool]
    changes: str

    def admits(self, value: Any) -> bool:
        return self.values(value) if callable(self.values) else value in self.values


class Fields:
    """The fields of one checkpoint, by name; `where` is named in errors."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    def need(self, *names: str) -> None:
        if missing := [name for name in names if self.values.get(name) is None]:
            raise FormatError(f"{self.where} has no {', '.join(missing)}")

    def whole(self, name: str, default: int | None = None) -> int:
        """A size: an integer above 0."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FormatError(f"{self.where}: {name} is {shown(value)}; a whole number above 0 is wanted")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise FormatError(f"{self.where}: {name} is {shown(value)}; a number above 0 is wanted")
        return float(value)

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value


def refuse_fields(fields: Fields, harmless: Collection[str], rules: Mapping[str, Neutral], remedy: str = "") -> None:
    """Raise one error with every field that would change what is computed; `harmless` are read or have no effect."""
    refused = {}
    for name, value in fields.values.items():
        unset = value is None or (isinstance(value, str | list | tuple | dict) and not value)
        if unset or name in harmless:
            continue
        rule = rules.get(name)
        if rule is None:
            refused[name] = f"{name} = {shown(value)}: an unknown field, and what it changes is unknown"
        elif not rule.admits(value):
            refused[name] = f"{name} = {shown(value)}: {rule.changes}"
    if not refused:
        return
    count = "a field that changes" if len(refused) == 1 else f"{len(refused)} fields that change"
    lines = [f"{fields.where} has {count} what the model computes and cannot be exported:"]
    lines += [f"  {line}" for line in refused.values()]
    if remedy and any(name not in rules for name in refused):
        lines.append(remedy)
    raise UnsupportedError("\n".join(lines), list(refused))


def shown(value: Any) -> str:
    """A value in a message, as JSON and cut to a line."""
    text = json.dumps(value, default=str, ensure_ascii=True)
    return text if len(text) <= 90 else f"{text[:87]}..."
