"""The task file NAME.task.json beside NAME.pte: the task of the program, and the fields that the task needs.

`webpte.export` writes it; `webpte.embed`, `webpte.vision` and `webpte.speech` read it. A reader must read every field:
one that it ignored could change the results, so an unread field is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import FormatError, InputError
from .json_files import read_json

LANGUAGE_RERANKING = "language_reranking"  # the task of a program that still is a language model
MAX_TASK_FILE_BYTES = 16 << 20  # labels and prompts are most of a file


def task_path(program: Path) -> Path:
    return program.with_name(f"{program.stem}.task.json")


def write_task(program: Path, task: str, fields: Mapping[str, Any]) -> Path:
    """Write the task file of a program, and return its path."""
    path = task_path(program)
    path.write_text(json.dumps({"task": task, **fields}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def task_of(program: Path) -> str | None:
    """Return the task of a program; None if it has no task file."""
    return str(_content(program)["task"]) if task_path(program).exists() else None


def read_task(program: Path, task: str) -> TaskFile:
    """Return the task file of a program, which must be for this task."""
    path = task_path(program)
    content = _content(program)
    if content["task"] != task:
        raise InputError(
            argument=str(program),
            expected=f"a program for the task {task!r}",
            got=f"{content['task']!r} ({path.name})",
            code="wrong_task",
        )
    return TaskFile(str(path), content)


def _content(program: Path) -> dict[str, Any]:
    path = task_path(program)
    if not path.exists():
        raise InputError(
            f"the file {path.name} beside it is missing",
            argument=str(program),
            code="missing_task_file",
            hint="`webpte export` writes both.",
        )
    content = read_json(path, MAX_TASK_FILE_BYTES)
    if not isinstance(content, dict) or not isinstance(content.get("task"), str):
        raise FormatError("not a JSON object with a task", argument=str(path), code="invalid_task_file")
    return content


def other_export(program: Path, expected: str, got: object) -> FormatError:
    """Return the error for a program that does not match its task file."""
    return FormatError(
        argument=str(program),
        expected=f"{expected}, as in {task_path(program).name}",
        got=got,
        code="other_export",
        hint="The program and its task file are from different exports.",
    )


class TaskFile:
    """The fields of a task file. Each is checked when it is read."""

    def __init__(self, path: str, fields: Mapping[str, Any]) -> None:
        self.path = path
        self._fields = fields
        self._read = {"task"}

    def check_all_read(self) -> None:
        """Raise if the file has a field that was not read."""
        if unknown := sorted(set(self._fields) - self._read):
            raise FormatError(
                f"unknown field {', '.join(unknown)}",
                argument=self.path,
                code="unknown_field",
                hint="Export again with this version of webpte.",
            )

    def integer(self, name: str, low: int, high: int = (1 << 31) - 1) -> int:
        value = self._value(name)
        valid = _is_integer(value, low, high)
        return int(value) if valid else self._invalid(name, value, f"an integer from {low} to {high}")

    def integers(self, name: str, count: int | None, low: int = 1, high: int = 1 << 16) -> tuple[int, ...]:
        """Return a list of `count` integers, or of any length with None."""
        value = self._value(name)
        valid = isinstance(value, list) and (count is None or len(value) == count)
        valid = valid and all(_is_integer(number, low, high) for number in value)
        expected = f"a list of {'' if count is None else f'{count} '}integers from {low} to {high}"
        return tuple(value) if valid else self._invalid(name, value, expected)

    def number(self, name: str) -> float:
        value = self._value(name)
        return float(value) if _is_finite(value) else self._invalid(name, value, "a finite number")

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        value = self._value(name)
        valid = isinstance(value, list) and len(value) == count and all(map(_is_finite, value))
        return tuple(map(float, value)) if valid else self._invalid(name, value, f"a list of {count} finite numbers")

    def boolean(self, name: str) -> bool:
        value = self._value(name)
        return value if isinstance(value, bool) else self._invalid(name, value, "true or false")

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        value = self._value(name)
        valid = isinstance(value, str) and value in allowed
        return str(value) if valid else self._invalid(name, value, f"one of {', '.join(allowed)}")

    def string(self, name: str) -> str:
        value = self._value(name)
        return value if isinstance(value, str) else self._invalid(name, value, "a string")

    def strings(self, name: str) -> list[str]:
        value = self._value(name)
        valid = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return list(value) if valid else self._invalid(name, value, "a list of strings")

    def string_map(self, name: str) -> dict[str, str]:
        value = self._value(name)
        valid = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
        return dict(value) if valid else self._invalid(name, value, "an object of strings")

    def integer_map(self, name: str) -> dict[str, int]:
        value = self._value(name)
        valid = isinstance(value, dict) and all(type(item) is int for item in value.values())
        return dict(value) if valid else self._invalid(name, value, "an object of integers")

    def has(self, name: str) -> bool:
        """Return whether a field is present and not null. It counts as read."""
        self._read.add(name)
        return self._fields.get(name) is not None

    def _value(self, name: str) -> Any:
        self._read.add(name)
        if name not in self._fields:
            raise FormatError(
                f"missing field {name}", argument=self.path, code="missing_field", hint="Export the program again."
            )
        return self._fields[name]

    def _invalid(self, name: str, value: object, expected: str) -> Any:
        text = repr(value)
        raise FormatError(
            argument=f"{self.path}: {name}",
            expected=expected,
            got=text if len(text) <= 60 else f"{text[:57]}...",
            code="invalid_field",
        )


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
