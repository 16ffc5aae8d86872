"""An answer on the screen while it comes. What a model says is text: nothing of it moves the cursor."""

from __future__ import annotations

import itertools
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax

from ...errors import InputError, UnsupportedError
from ...text import sanitize
from .. import interrupts
from ..output import say
from ..terminal import open_console
from .conversation import Conversation

LONGEST_WAIT = 0.1  # seconds, until Python looks for signals


class Lines(Protocol):
    interactive: bool
    """Whether somebody is there to go on after Ctrl-C."""

    def read(self) -> str:
        """The next message, of one line or several. EOFError at the end, KeyboardInterrupt after Ctrl-C."""


def open_lines(talk: Conversation) -> Lines:
    if not rich_terminal():
        return PlainLines()
    try:
        from .prompt import PromptLines
    except ImportError as error:
        raise UnsupportedError("webpte chat needs the prompt_toolkit package: pip install 'webpte[llm]'") from error
    return PromptLines(talk)


def rich_terminal() -> bool:
    """Whether keys come from a terminal, and text goes to one, that moves its cursor as it is told."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


class PlainLines:
    """Lines as they come. One that ends in a backslash goes on in the next."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty()

    def read(self) -> str:
        text = self._line()
        while text.endswith("\\"):
            try:
                text = f"{text[:-1]}\n{self._line()}"
            except EOFError:
                return text[:-1]
        return text

    def _line(self) -> str:
        if self.interactive:
            print("> ", end="", file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)
            # In C's own reader a signal that comes just before it blocks goes unnoticed until the next key.
            while os.name == "posix" and not select.select([sys.stdin], [], [], LONGEST_WAIT)[0]:
                pass
        try:
            line = sys.stdin.readline()
            line.encode()  # some locales let anything pass, as halves of characters
        except UnicodeError as error:
            raise InputError(f"what comes from stdin is no text: {error}. Convert it, for instance by iconv") from error
        if not line:
            if self.interactive:
                print()
            raise EOFError
        return line.rstrip("\r\n")


_CODES = re.compile(r"\x1b\[[0-9;]*m")
_TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")


@cache
def _parser() -> MarkdownIt:
    # Tags are text: rich would leave them out, and with them what the model has said.
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def blocks(text: str) -> list[str]:
    """Paragraphs, lists, tables and so on, of which nothing can change any but the last by being written behind it."""
    found = _parser().parse(text)
    starts = [token.map[0] for token in found if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.split("\n")
    edges = [0, *starts[1:], len(lines)]
    return ["\n".join(lines[first:last]) for first, last in itertools.pairwise(edges)]


def rendered(block: str, columns: int) -> list[str]:
    """Lines, with the terminal's codes for what is bold or coloured, and without empty ones around them."""
    console = open_console(width=max(1, columns))
    with console.capture() as captured:
        console.print(_ChatMarkdown(block))
    lines = [_TRAILING.sub(r"\1", line) for line in captured.get().split("\n")]
    filled = [number for number, line in enumerate(lines) if _CODES.sub("", line).strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


class _Code(CodeBlock):
    """In the terminal's own colours, without a ground that would be copied along."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme="ansi_dark", background_color="default", word_wrap=True)


class _Heading(Heading):
    """Where the text below it begins."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _ChatMarkdown(Markdown):
    elements = Markdown.elements | {"fence": _Code, "code_block": _Code, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)  # an address is shown, not hidden in the terminal's codes
        self.parsed = _parser().parse(text)
        for token in self.parsed:
            _keep_breaks(token)


def _keep_breaks(token: Token) -> None:
    """Lines end where the model ends them, as in a poem or an address."""
    for child in token.children or ():
        if child.type == "softbreak":
            child.type = "hardbreak"


FRAME = 1 / 20  # seconds between two pictures of a text that is growing


class AnswerView(Protocol):
    def add(self, text: str) -> None: ...


class Display(Protocol):
    def answer(self) -> AbstractContextManager[AnswerView]: ...


def open_display(interactive: bool) -> Display:
    return MarkdownDisplay() if interactive and rich_terminal() else PlainDisplay()


class PlainDisplay:
    """As it comes."""

    @contextmanager
    def answer(self) -> Iterator[AnswerView]:
        try:
            yield self
        finally:
            say()

    def add(self, text: str) -> None:
        say(text, end="")


class MarkdownDisplay:
    """Markdown, drawn again as it grows: finished blocks once and for all, the last one in its place."""

    @contextmanager
    def answer(self) -> Iterator[AnswerView]:
        growing = GrowingText()
        with _no_echo():
            try:
                growing.draw()
                yield growing
            finally:
                growing.finish()


class GrowingText:
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
        self._rest += sanitize(text)
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
