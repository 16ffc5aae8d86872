"""The fields of a request's JSON, each checked when it is asked for; one that nobody asked for is refused by name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..failures import Refusal

MISSING: Any = object()


class Fields:
    """An object of JSON. Null counts as not given, as clients send it."""

    def __init__(self, found: Any, where: str = "") -> None:
        if not isinstance(found, dict):
            raise Refusal(400, f"{where or 'the body'} is a JSON object, not {shown(found)}", param=where or None)
        self._found: Mapping[str, Any] = found
        self._where = where
        self._asked: dict[str, None] = {}

    def path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def wrong(self, name: str, wanted: str) -> Refusal:
        return Refusal(400, f"{self.path(name)} is {wanted}, not {shown(self._found.get(name))}", param=self.path(name))

    def raw(self, name: str, default: Any = None) -> Any:
        """Whatever it is; `default` if it is absent or null, and with MISSING a refusal."""
        self._asked[name] = None
        value = self._found.get(name)
        if value is not None:
            return value
        if default is MISSING:
            raise Refusal(
                400, f"{self.path(name)} is missing", param=self.path(name), code="missing_required_parameter"
            )
        return default

    def text(self, name: str, default: Any = MISSING) -> Any:
        value = self.raw(name, default)
        if value is not default and not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def whole(self, name: str, low: int, high: int, default: Any = MISSING) -> Any:
        value = self.raw(name, default)
        if value is default:
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def real(self, name: str, low: float, high: float, default: Any = MISSING) -> Any:
        value = self.raw(name, default)
        if value is default:
            return value
        right = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not right or not low <= value <= high:
            raise self.wrong(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def choice(self, name: str, allowed: Sequence[str], default: Any = MISSING) -> Any:
        value = self.raw(name, default)
        if value is not default and value not in allowed:
            raise self.wrong(name, f"one of {', '.join(allowed)}")
        return value

    def listed(self, name: str, most: int, default: Any = MISSING) -> Any:
        value = self.raw(name, default)
        if value is default:
            return value
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        if len(value) > most:
            raise Refusal(
                400, f"{self.path(name)} has {len(value)} entries; {most} are the most", param=self.path(name)
            )
        return value

    def inside(self, name: str, default: Any = MISSING) -> Any:
        """An object in the object."""
        value = self.raw(name, default)
        return value if value is default else Fields(value, self.path(name))

    def ignore(self, *names: str) -> None:
        """Fields that change nothing about an answer."""
        self._asked.update(dict.fromkeys(names))

    def refuse(self, remedies: Mapping[str, str]) -> None:
        """Fields that would change an answer and that this server does not serve, with what to do instead."""
        for name, remedy in remedies.items():
            self._asked[name] = None
            if self._found.get(name) not in (None, False):
                raise Refusal(
                    400,
                    f"{self.path(name)} is not served: {remedy}",
                    param=self.path(name),
                    code="unsupported_parameter",
                )

    def end(self) -> None:
        """All has been asked for."""
        for name, value in self._found.items():
            if name not in self._asked and value is not None:
                near = difflib.get_close_matches(name, self._asked, 1)
                meant = f"; did you mean {near[0]}?" if near else ""
                raise Refusal(
                    400, f"{self.path(name)} is not known here{meant}", param=self.path(name), code="unknown_parameter"
                )


def shown(value: Any) -> str:
    """A value in a message, cut short: requests may be large, and logs hold no prompts."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
