"""Read files of others by the names of their fields, and name every field that is left over.

A field is read, known to have no effect, or reported: refused if results would be wrong without it, or named in a
warning. Null and empty mean that a field is unset.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)


class FieldRule(NamedTuple):
    """A field that changes what a model computes, unless it has a neutral value."""

    neutral: tuple[Any, ...] | Callable[[Any], bool]
    effect: str  # of other values

    def is_neutral(self, value: Any) -> bool:
        return self.neutral(value) if callable(self.neutral) else value in self.neutral


class ReadFields:
    """The fields of one file by name, and which of them were read; `where` is named in messages."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values
        self.prefix = ""  # of the names that are read, such as "llama." in GGUF files
        self._read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field; null counts as absent."""
        self._read.add(self.prefix + name)
        value = self.values.get(self.prefix + name)
        return default if value is None else value

    def unread(self, ignored: Callable[[str], bool], rules: Mapping[str, FieldRule]) -> dict[str, str]:
        """Return a line for each field that changes results and was not read; `ignored` fields have no effect."""
        lines = {}
        for name, value in self.values.items():
            unset = value is None or (isinstance(value, str | list | tuple | dict) and not value)
            if unset or name in self._read or ignored(name):
                continue
            rule = rules.get(name)
            if rule is None:
                lines[name] = f"{name} = {as_json(value)}: an unknown field"
            elif not rule.is_neutral(value):
                lines[name] = f"{name} = {as_json(value)}: {rule.effect}"
        return lines

    def warn_unread(self, ignored: Callable[[str], bool], rules: Mapping[str, FieldRule]) -> None:
        """Log one warning that names every field that changes results and was not read."""
        if lines := self.unread(ignored, rules):
            text = "\n".join(f"  {line}" for line in lines.values())
            logger.warning("%s has fields that are not applied:\n%s", self.where, text)


def as_json(value: Any) -> str:
    """Return a value as JSON, cut to one line of a message."""
    text = json.dumps(value, default=str, ensure_ascii=True)
    return text if len(text) <= 90 else f"{text[:87]}..."
