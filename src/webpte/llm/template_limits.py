"""What a chat template may cost: steps, processor time, and the text and lists it makes.

A template comes out of a downloaded file. Every step, and every value that a single operation could make large, is paid
for here before it is made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from typing import Any

from ..errors import FormatError

STEPS = 1_000_000  # blocks entered, calls, filters
SECONDS = 1.0  # of this thread's processor time: a busy machine makes no difference
CHARACTERS = 48_000_000  # made in all, intermediate results included
ELEMENT = 64  # characters that an element of a list counts for
TREE = 100_000  # elements of a value, each counted as often as it can be reached
DEPTH = 100
WIDTH = 10_000  # of padding, indentation and the like
BITS = 100_000  # of a whole number
_LOOKS = 64  # steps between two looks at the clock


class Meter:
    """Counts what one rendering has used, and ends it with a FormatError."""

    def __init__(self) -> None:
        self._steps = 0
        self._characters = 0
        self._end = time.thread_time() + SECONDS

    def step(self, characters: int = 0) -> None:
        """One step, which puts out `characters` of the template's own text."""
        self._steps += 1
        if self._steps > STEPS:
            raise over(f"takes more than {STEPS:,} steps")
        if self._steps % _LOOKS == 0:
            self._look()
        if characters:
            self.characters(characters)

    def characters(self, count: int) -> None:
        """`count` characters, or what stands for them, are about to be made."""
        self._characters += count
        if self._characters > CHARACTERS:
            raise over(f"makes more than {CHARACTERS:,} characters")
        if count > 10_000:
            self._look()

    def elements(self, count: int) -> None:
        self.characters(count * ELEMENT)

    def _look(self) -> None:
        if time.thread_time() > self._end:
            raise over(f"takes more than {SECONDS:g} s")

    # -- values ----------------------------------------------------------------------------------------------------

    def made(self, value: Any) -> Any:
        """A value that was just made: its text, or its own elements."""
        if isinstance(value, (str, bytes)):
            self.characters(len(value))
        elif isinstance(value, (list, tuple, Set, Mapping)):
            self.elements(len(value))
        return value

    def made_of(self, value: Any) -> Any:
        """A value that was put together from others, which it may hold several times over."""
        self.size(value)
        return self.made(value)

    def text(self, value: Any) -> str:
        """A value as text."""
        if not isinstance(value, str):
            self.characters(self.size(value)[0])
        shown = str(value)
        self.characters(len(shown))
        return shown

    def size(self, value: Any) -> tuple[int, int]:
        """About how long a value is as text, and how deep it is nested; refused where it is out of all proportion.

        Lists may share elements: a few, each holding the one before twice, have no end when written out or compared.
        """
        if isinstance(value, str):
            return len(value), 0
        characters, elements, deepest = 0, 0, 0
        waiting = [(value, 1)]
        while waiting:
            item, depth = waiting.pop()
            elements += 1
            deepest = max(deepest, depth)
            if elements + len(waiting) > TREE or depth > DEPTH:
                raise over(f"makes a value of more than {TREE:,} elements or {DEPTH} levels")
            if isinstance(item, (str, bytes)):
                characters += len(item)
            elif isinstance(item, Mapping):
                waiting.extend((part, depth + 1) for pair in item.items() for part in pair)
            elif isinstance(item, (list, tuple, Set)):
                waiting.extend((part, depth + 1) for part in item)
        if elements > _LOOKS:
            self._look()
        return characters + elements * ELEMENT, deepest


def check_width(*values: Any) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > WIDTH:
            raise over(f"asks for a width of {value if abs(value) < 10**12 else 'very many'} characters")


def over(what: str) -> FormatError:
    """What ends a template that goes too far."""
    return FormatError(f"the chat template {what}: more than a chat template may", code="template_limit")
