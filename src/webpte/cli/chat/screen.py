"""An answer on the screen while it comes. What a model says is text: nothing of it moves the cursor."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from ...tools.text import plain
from .. import interrupts
from ..say import say
from .lines import rich_terminal
from .markdown import blocks, rendered

FRAME = 1 / 20  # seconds between two pictures of a text that is growing


class Shown(Protocol):
    def add(self, text: str) -> None: ...


class Show(Protocol):
    def answer(self) -> AbstractContextManager[Shown]: ...


def open_show(interactive: bool) -> Show:
    return MarkdownShow() if interactive and rich_terminal() else PlainShow()


class PlainShow:
    """As it comes."""

    @contextmanager
    def answer(self) -> Iterator[Shown]:
        try:
            yield self
        finally:
            say()

    def add(self, text: str) -> None:
        say(text, end="")


class MarkdownShow:
    """Markdown, drawn again as it grows: finished blocks once and for all, the last one in its place."""

    @contextmanager
    def answer(self) -> Iterator[Shown]:
        growing = Growing()
        with _no_echo():
            try:
                growing.draw()
                yield growing
            finally:
                growing.finish()


class Growing:
    """A text that is drawn while it grows.

    Blocks that are finished are printed and left alone, so they scroll as everything does. Only the block that may
    still change is drawn over; of one that is higher than the screen the end is shown, and all of it when it is
    finished. Of each picture only the lines that changed are written.
    """

    def __init__(self) -> None:
        self._rest = ""  # the block that may still change
        self._drawn: list[str] = []
        self._above = False  # whether blocks of this answer were printed
        self._next = 0.0

    def add(self, text: str) -> None:
        self._rest += plain(text)
        if time.monotonic() >= self._next:
            self.draw()

    def draw(self) -> None:
        columns, rows = shutil.get_terminal_size()
        with interrupts.deferred():  # what is known of the screen is true of it
            *done, self._rest = blocks(self._rest)
            self._print(done, columns)
            lines = self._lines(self._rest, columns) or ["…"]
            self._draw(lines[-max(1, rows - 2) :])
        self._next = time.monotonic() + FRAME

    def finish(self) -> None:
        """Leave the text on the screen as it is."""
        with interrupts.deferred():
            self._print(blocks(self._rest), shutil.get_terminal_size().columns)
            self._draw([])
            self._rest = ""

    def _print(self, finished: list[str], columns: int) -> None:
        for block in finished:
            if lines := self._lines(block, columns):
                self._draw(lines)
                self._drawn, self._above = [], True

    def _lines(self, block: str, columns: int) -> list[str]:
        lines = rendered(block, columns - 1)
        return ["", *lines] if lines and self._above else lines

    def _draw(self, lines: list[str]) -> None:
        """In the place of what was drawn last; the cursor is below it."""
        same = next((n for n, pair in enumerate(zip(lines, self._drawn, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(lines), len(self._drawn)) if same is None else same
        back = len(self._drawn) - same
        moved = f"\x1b[{back}A\x1b[J" if back else ""
        sys.stdout.write(moved + "".join(f"{line}\n" for line in lines[same:]))
        sys.stdout.flush()
        self._drawn = lines


@contextmanager
def _no_echo() -> Iterator[None]:
    """What is typed during an answer waits for the prompt, and does not stand between its lines."""
    try:
        import termios
    except ImportError:  # not a terminal of this kind
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]

    def restore() -> None:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    with interrupts.before_the_end(restore):
        try:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
            yield
        finally:
            restore()
