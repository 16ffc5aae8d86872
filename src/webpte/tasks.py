"""NAME.task.json beside NAME.pte: what the program is for, and what a task needs to know of its model.

`webpte.export` writes it; `webpte.embed`, `webpte.vision` and `webpte.speech` read it. Whoever reads it asks for every
field: one that nobody asked for would be left out of the computation, and is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import FormatError, InputError

LARGEST_FILE = 16 << 20  # bytes; labels and prompts are all of it


def task_path(program: Path) -> Path:
    return program.with_name(f"{program.stem}.task.json")


def write_task(program: Path, task: str, fields: Mapping[str, Any]) -> Path:
    """Write what a program is for beside it."""
    path = task_path(program)
    path.write_text(json.dumps({"task": task, **fields}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read_task(program: Path, task: str) -> TaskFile:
    """What is beside a program, which must be for this task."""
    path = task_path(program)
    try:
        if (size := path.stat().st_size) > LARGEST_FILE:
            raise FormatError(f"{path} has {size} bytes; {LARGEST_FILE} are the most", code="file_too_large")
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"there is no {path.name} beside {program}, which tells what it is for: `webpte export` writes both",
            code="missing_task_file",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} cannot be read: {error}", code="unreadable") from error
    if not isinstance(found, dict) or not isinstance(found.get("task"), str):
        raise FormatError(f"{path} is not a JSON object that names its task", code="invalid_task_file")
    if found["task"] != task:
        raise InputError(
            f"{program} is for the task {found['task']!r}, by {path.name}, not for {task!r}", code="wrong_task"
        )
    return TaskFile(str(path), found)


class TaskFile:
    """The fields of such a file, each checked when it is asked for."""

    def __init__(self, where: str, fields: Mapping[str, Any]) -> None:
        self.where = where
        self._fields = fields
        self._asked = {"task"}

    def end(self) -> None:
        """All has been asked for."""
        if rest := sorted(set(self._fields) - self._asked):
            raise FormatError(
                f"{self.where}: {', '.join(rest)} is unknown to this version of webpte; export again",
                code="unknown_field",
            )

    def whole(self, name: str, low: int, high: int = (1 << 31) - 1) -> int:
        value = self._value(name)
        right = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return int(value) if right else self._wrong(name, value, f"a whole number from {low} to {high}")

    def real(self, name: str) -> float:
        value = self._value(name)
        return float(value) if _is_real(value) else self._wrong(name, value, "a finite number")

    def reals(self, name: str, count: int) -> tuple[float, ...]:
        value = self._value(name)
        right = isinstance(value, list) and len(value) == count and all(map(_is_real, value))
        return tuple(map(float, value)) if right else self._wrong(name, value, f"a list of {count} finite numbers")

    def wholes(self, name: str, count: int | None, low: int = 1, high: int = 1 << 16) -> tuple[int, ...]:
        """So many of them, or with None any number."""
        value = self._value(name)
        right = isinstance(value, list) and (count is None or len(value) == count)
        right = right and all(isinstance(v, int) and not isinstance(v, bool) and low <= v <= high for v in value)
        told = f"a list of {'' if count is None else f'{count} '}whole numbers from {low} to {high}"
        return tuple(value) if right else self._wrong(name, value, told)

    def flag(self, name: str) -> bool:
        value = self._value(name)
        return value if isinstance(value, bool) else self._wrong(name, value, "true or false")

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        value = self._value(name)
        right = isinstance(value, str) and value in allowed
        return str(value) if right else self._wrong(name, value, f"one of {', '.join(allowed)}")

    def texts(self, name: str) -> list[str]:
        value = self._value(name)
        right = isinstance(value, list) and all(isinstance(text, str) for text in value)
        return list(value) if right else self._wrong(name, value, "a list of texts")

    def named_texts(self, name: str) -> dict[str, str]:
        value = self._value(name)
        right = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        return dict(value) if right else self._wrong(name, value, "texts by name")

    def named_wholes(self, name: str) -> dict[str, int]:
        value = self._value(name)
        right = isinstance(value, dict) and all(type(number) is int for number in value.values())
        return dict(value) if right else self._wrong(name, value, "whole numbers by name")

    def given(self, name: str) -> bool:
        """Whether a field is there and not null; one that is null has been asked for."""
        self._asked.add(name)
        return self._fields.get(name) is not None

    def _value(self, name: str) -> Any:
        self._asked.add(name)
        if name not in self._fields:
            raise FormatError(f"{self.where} has no {name}; export again", code="missing_field")
        return self._fields[name]

    def _wrong(self, name: str, value: object, wanted: str) -> Any:
        shown = repr(value)
        raise FormatError(
            f"{self.where}: {name} is {wanted}, not {shown if len(shown) <= 60 else shown[:57] + '...'}",
            code="invalid_field",
        )


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
