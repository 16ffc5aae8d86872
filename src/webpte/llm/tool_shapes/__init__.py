"""Shapes of tool calls: how families of models write a call, read back and as a grammar.

Each file declares one as SHAPE. Its name is that of the file, and that in `ToolFormat.shape`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import import_module
from itertools import count
from pkgutil import iter_modules
from typing import Any

from ...errors import FormatError
from ..tokenizer import Tokenizer

Schemas = Mapping[str, Mapping[str, Any]]  # the JSON schemas of arguments, by the names of tools


@dataclass(frozen=True)
class ToolCall:
    """A call that a model asks for."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes calls: `begin`, calls of a `shape`, `end`. Such blocks may repeat."""

    shape: str
    begin: str
    end: str = ""  # empty: a call extends to the next one, or to the end of the text
    bare: bool = False  # a text that starts with `{` or `[` is a call without `begin`
    name: str = "name"  # of a call, in an object
    arguments: str = "arguments"  # in an object; of the shape `named`, what separates the name from the arguments
    padding: str = "\n"  # of the shape `parameters`: before and after each value

    @classmethod
    def from_json(cls, value: Any, where: str) -> ToolFormat:
        """Return the format that `to_json` has written. `where` names the file in errors."""
        kinds = {"bare": bool} | {item.name: str for item in fields(cls) if item.name != "bare"}
        argument = f"{where}: tool_format"
        if not isinstance(value, dict) or not value.get("begin"):
            raise FormatError(
                argument=argument, expected="an object with begin", got=type(value).__name__, code="missing_field"
            )
        if invalid := [name for name, field in value.items() if not isinstance(field, kinds.get(name, ()))]:
            raise FormatError(
                argument=argument,
                expected=f"the fields {', '.join(kinds)}, of which bare is a boolean and the others are strings",
                got=", ".join(invalid),
                code="invalid_field",
            )
        if value.get("shape") not in shape_names():
            raise FormatError(
                argument=f"{argument}.shape",
                expected=f"one of {', '.join(shape_names())}",
                got=repr(value.get("shape")),
                code="unknown_kind",
            )
        return cls(**value)

    def to_json(self) -> dict[str, str | bool]:
        return asdict(self)


class CallRules:
    """Collects the rules of one call, in llguidance's Lark. Their names begin with that of the call's own rule."""

    def __init__(self, name: str, format: ToolFormat, tokenizer: Tokenizer) -> None:
        self.format = format
        self.rules: list[str] = []
        self.shared: dict[Any, str] = {}  # the names of rules for what may occur several times
        self._name, self._tokenizer = name, tokenizer
        self._numbers = count()

    def new_name(self) -> str:
        return f"{self._name}_{next(self._numbers)}"

    def add(self, body: str, name: str | None = None) -> str:
        """Add a rule, and return its name."""
        name = name or self.new_name()
        self.rules.append(f"{name}: {body}")
        return name

    def marker(self, text: str) -> str:
        return marker(text, self._tokenizer)

    def members(self, members: Sequence[tuple[str, str, bool]], separator: str) -> str:
        """Return an expression of members in their order, each with its text, its value, and whether it is required.

        A separator precedes each one but the first that is present.
        """
        first, rest = '""', '""'
        for text, value, must in reversed(members):
            member = f"{literal(text)} {self.add(value)}"
            first = self.add(f"{member} {rest}" if must else f"{member} {rest} | {first}")
            following = f"{literal(separator)} {member}"
            rest = self.add(f"{following} {rest}" if must else f"({following})? {rest}")
        return first

    def lazy(self, *patterns: str) -> str:
        """Return a rule of the shortest text that is of all regular expressions, which begin with / or ~/."""
        name = self.new_name()
        terminal = self.add(" & ".join(patterns), name.upper())
        return self.add(terminal, f"{name}[lazy]").removesuffix("[lazy]")


class ToolShape(ABC):
    """A way to write calls between the markers of a format."""

    @abstractmethod
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        """Return the calls of a block. Raise ValueError if its content is something else."""

    @abstractmethod
    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        """Return an expression of llguidance's Lark for a call of one tool. `rules` collects the rules it needs."""

    def block(self, call: str, max_calls: int) -> str:
        """Return the expression of the content of a block, with an expression of any call."""
        return f"({call})"

    def repeats(self, format: ToolFormat) -> bool:
        """Return whether several calls are several blocks."""
        return bool(format.end)

    @abstractmethod
    def open_string(self, text: str, opened: str) -> str:
        """Return the mark of the string that `text` leaves open, which may contain the end of a call; empty for none.
        `opened` is that of the string that was open before `text`."""


@cache
def shape_names() -> tuple[str, ...]:
    return tuple(file.name for file in iter_modules(__path__))


@cache
def shape_named(name: str) -> ToolShape:
    shape: ToolShape = import_module(f"{__name__}.{name}").SHAPE
    return shape


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def marker(text: str, tokenizer: Tokenizer) -> str:
    """Return a marker: a special token if it is one, else a literal."""
    if not text:
        return ""
    number = tokenizer.token_id(text)
    if number is not None and number in tokenizer.special_ids:
        return f"<[{number}]>"
    return literal(text)
