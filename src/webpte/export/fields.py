"""What a checkpoint says of itself is a closed world: each field is read, known to change nothing, or refused by name.

A model that is wrong by a few percent still talks, so an unknown field is never skipped. Null and empty are how a field
is left unset; no other value of an unknown one is believed, `false` and 0 included: `use_rope: false` would switch off
something that is on here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import FormatError, UnsupportedError

MAX_SIZE = 1 << 20  # of a dim of a model, and of a vocabulary
MAX_CONTEXT = 1 << 40  # tokens: a number of a formula, for which no memory is taken
MAX_TOKEN_ID = (1 << 31) - 1
MIN_REAL, MAX_REAL = 1e-30, 1e30  # of factors: beyond, products of them are no longer finite


class Neutral(NamedTuple):
    """A field that changes what a model computes, unless its value is one of these."""

    values: tuple[Any, ...] | Callable[[Any], bool]
    changes: str

    def admits(self, value: Any) -> bool:
        return self.values(value) if callable(self.values) else value in self.values


class Fields:
    """The fields of one checkpoint, by name; `where` is named in errors.

    Whoever asks for a field vouches for every value it may have. What nobody asked for is judged by `refuse_others`.
    """

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values
        self.prefix = ""  # of the names that are asked for, such as "llama." in GGUF files
        self._asked: set[str] = set()
        self._refused: dict[str, str] = {}

    def under(self, prefix: str) -> Fields:
        """The same fields, named without a prefix that they share."""
        view = copy.copy(self)
        view.prefix = prefix
        return view

    def need(self, *names: str) -> None:
        if missing := [self.prefix + name for name in names if self.get(name) is None]:
            raise FormatError(f"{self.where} has no {', '.join(missing)}", code="missing_field")

    def get(self, name: str, default: Any = None) -> Any:
        """As it stands, null being as good as absent."""
        self._asked.add(self.prefix + name)
        value = self.values.get(self.prefix + name)
        return default if value is None else value

    def whole(self, name: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """A size: an integer from 1 to `most`."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(name, value, f"a whole number above 0 and at most {most}")
        return value

    def token_id(self, name: str) -> int | None:
        """The number of a token, where there is one."""
        value = self.get(name)
        if value is not None and not is_token_id(value):
            raise self.wrong(name, value, "the number of a token")
        return value  # type: ignore[no-any-return]

    def string(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def list_of(self, name: str, *types: type) -> list[Any]:
        """A list whose elements are of these types; empty where there is none."""
        value = self.get(name, [])
        if not isinstance(value, list) or not all(type(element) in types for element in value):
            raise self.wrong(name, value, f"a list of {' or '.join(each.__name__ for each in types)}")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self.get(name, default)
        if not _is_factor(value):
            raise self.wrong(name, value, f"a number above 0, from {MIN_REAL:g} to {MAX_REAL:g},")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def reals(self, name: str) -> tuple[float, ...]:
        """Numbers above 0."""
        value = self.get(name)
        if not isinstance(value, list | tuple) or not all(map(_is_factor, value)):
            raise self.wrong(name, value, "a list of numbers above 0")
        return tuple(float(number) for number in value)

    def wrong(self, name: str, value: Any, wanted: str) -> FormatError:
        return FormatError(
            f"{self.where}: {self.prefix}{name} is {shown(value)}; {wanted} is wanted", code="invalid_field"
        )

    def refuse(self, name: str, changes: str) -> None:
        """Told by `refuse_others`, together with all the others; `changes` says what the field changes."""
        self._asked.add(self.prefix + name)
        self._refused[self.prefix + name] = (
            f"{self.prefix}{name} = {shown(self.values.get(self.prefix + name))}: {changes}"
        )

    def refuse_others(self, harmless: Callable[[str], bool], rules: Mapping[str, Neutral], remedy: str = "") -> None:
        """Raise one error with every field that would change what is computed; `harmless` have no effect."""
        refused = dict(self._refused)
        unknown = False
        for name, value in self.values.items():
            unset = value is None or (isinstance(value, str | list | tuple | dict) and not value)
            if unset or name in self._asked or harmless(name):
                continue
            rule = rules.get(name)
            if rule is None:
                unknown = True
                refused[name] = f"{name} = {shown(value)}: an unknown field, and what it changes is unknown"
            elif not rule.admits(value):
                refused[name] = f"{name} = {shown(value)}: {rule.changes}"
        if not refused:
            return
        count = "a field that changes" if len(refused) == 1 else f"{len(refused)} fields that change"
        lines = [f"{self.where} has {count} what the model computes and cannot be exported:"]
        lines += [f"  {line}" for line in refused.values()]
        raise UnsupportedError(
            "\n".join(lines + [remedy] * (unknown and bool(remedy))), list(refused), code="unsupported_field"
        )


def is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and MIN_REAL <= value <= MAX_REAL


def shown(value: Any) -> str:
    """A value in a message, as JSON and cut to a line."""
    text = json.dumps(value, default=str, ensure_ascii=True)
    return text if len(text) <= 90 else f"{text[:87]}..."
