"""Input and output of a chat: messages from a terminal or a pipe, answers as Markdown or plain text.

The text of a model is sanitized: it cannot move the cursor.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from textwrap import wrap
from typing import Protocol

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax

from ...environment import variable
from ...errors import InputError, UnsupportedError
from ...progress import Progress
from ...text import plural, sanitize
from .. import interrupts
from ..output import dim, say
from ..terminal import open_console
from .conversation import Conversation

MAX_SELECT_SECONDS = 0.1  # until Python checks for signals


class Lines(Protocol):
    """A source of messages."""

    interactive: bool  # whether the chat continues after Ctrl-C

    def read(self) -> str:
        """Return the next message. Raise EOFError at the end and KeyboardInterrupt after Ctrl-C."""


def open_lines(talk: Conversation) -> Lines:
    """Return the source of messages that suits stdin."""
    if not rich_terminal():
        return PlainLines()
    try:
        from .prompt import PromptLines
    except ImportError as error:
        raise UnsupportedError(
            "webpte chat requires the prompt_toolkit package",
            hint="Run: pip install 'webpte[llm]'",
            code="missing_package",
        ) from error
    return PromptLines(talk)


def rich_terminal() -> bool:
    """Return whether stdin and stdout are a terminal with cursor movement."""
    return sys.stdin.isatty() and sys.stdout.isatty() and variable("TERM") not in ("", "dumb", "unknown")


class PlainLines:
    """Lines of stdin. A line that ends in a backslash continues in the next."""

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
            # A signal that arrives just before C's reader blocks is unnoticed until the next key.
            while os.name == "posix" and not select.select([sys.stdin], [], [], MAX_SELECT_SECONDS)[0]:
                pass
        try:
            line = sys.stdin.readline()
            line.encode()  # some locales decode invalid bytes to lone surrogates
        except UnicodeError as error:
            raise InputError(
                f"stdin is not valid text: {error}", hint="Convert it, for instance with iconv.", code="invalid_utf8"
            ) from error
        if not line:
            if self.interactive:
                print()
            raise EOFError
        return line.rstrip("\r\n")


_CODES = re.compile(r"\x1b\[[0-9;]*m")
_TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")


@cache
def _parser() -> MarkdownIt:
    # Tags are text: rich would drop them, and with them part of the answer.
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def blocks(text: str) -> list[str]:
    """Return the blocks of a Markdown text. Appended text can change only the last block."""
    tokens = _parser().parse(text)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.split("\n")
    if starts[1:] and starts[-1] == len(lines) - 1 and lines[-2].strip():
        del starts[-1]  # "#" begins a heading, and "#1" continues the paragraph
    edges = [0, *starts[1:], len(lines)]
    return ["\n".join(lines[first:last]) for first, last in itertools.pairwise(edges)]


def render_block(block: str, columns: int) -> list[str]:
    """Return the lines of a block, with terminal codes for styles and without empty lines around them."""
    console = open_console(width=max(1, columns))
    with console.capture() as captured:
        console.print(_ChatMarkdown(block))
    lines = [_TRAILING.sub(r"\1", line) for line in captured.get().split("\n")]
    filled = [number for number, line in enumerate(lines) if _CODES.sub("", line).strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


class _Code(CodeBlock):
    """Code in the terminal's own colors, without a background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme="ansi_dark", background_color="default", word_wrap=True)


class _Heading(Heading):
    """A heading aligned with the text below it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _ChatMarkdown(Markdown):
    """Markdown with our code blocks, headings and line breaks."""

    elements = Markdown.elements | {"fence": _Code, "code_block": _Code, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)  # URLs are printed, not hidden in terminal codes
        self.parsed = _parser().parse(text)
        for token in self.parsed:
            _keep_breaks(token)


def _keep_breaks(token: Token) -> None:
    """Keep line breaks of the model, as in a poem or an address."""
    for child in token.children or ():
        if child.type == "softbreak":
            child.type = "hardbreak"


FRAME_SECONDS = 1 / 20  # between two drawings of a growing text


class AnswerView(Protocol):
    """Displays one answer."""

    def read_prompt(self, event: Progress) -> None: ...

    def think(self, text: str) -> None: ...

    def add(self, text: str) -> None: ...


class Display(Protocol):
    """Displays answers."""

    def answer(self) -> AbstractContextManager[AnswerView]: ...


def open_display(interactive: bool) -> Display:
    """Return the display that suits stdout."""
    return MarkdownDisplay() if interactive and rich_terminal() else PlainDisplay()


class PlainDisplay:
    """Plain text, as it is generated, without the thought before it."""

    @contextmanager
    def answer(self) -> Iterator[AnswerView]:
        try:
            yield self
        finally:
            say()

    def read_prompt(self, event: Progress) -> None:
        pass

    def think(self, text: str) -> None:
        pass

    def add(self, text: str) -> None:
        say(text, end="")


WAITING = "…"
COMPILING = "… compiling kernels for the first answer"
THOUGHT_LINES = 4  # shown of a thought while it grows


class MarkdownDisplay:
    """Markdown that is redrawn as it grows: finished blocks once, the last block in place."""

    def __init__(self) -> None:
        self._placeholder = COMPILING

    @contextmanager
    def answer(self) -> Iterator[AnswerView]:
        growing = GrowingText(self._placeholder)
        with _no_echo():
            try:
                growing.draw()
                yield growing
                self._placeholder = WAITING
            finally:
                growing.finish()


class GrowingText:
    """A text that is drawn while it grows.

    Finished blocks are printed once and scroll. Only the block that may still change is redrawn; if it is higher than
    the screen, its end is shown until it is finished. Each drawing writes only the lines that changed. The end of a
    thought is shown dim, until the answer begins and a line replaces it.
    """

    def __init__(self, placeholder: str) -> None:
        self._placeholder = placeholder  # shown until there is text
        self._rest = ""  # the block that may still change
        self._drawn: list[str] = []
        self._above = False  # whether blocks of this answer were printed
        self._next = 0.0
        self._thought = ""

    def read_prompt(self, event: Progress) -> None:
        """Show how much of the prompt is computed, until there is text."""
        if event.done < event.total:  # otherwise the text is next
            self._placeholder = f"reading the prompt: {event.done:,} of {event.total:,} {event.unit}"
            self.draw()

    def think(self, text: str) -> None:
        """Add to the thought before the text."""
        self._thought += sanitize(text)

    def add(self, text: str) -> None:
        if text.strip():
            self._fold()
        self._rest += sanitize(text)
        if time.monotonic() >= self._next:
            self.draw()

    def draw(self) -> None:
        columns, rows = shutil.get_terminal_size()
        with interrupts.deferred():  # the screen and `_drawn` stay in step
            *done, self._rest = blocks(self._rest)
            self._print(done, columns)
            lines = self._lines(self._rest, columns) or self._thought_lines(columns) or [self._placeholder]
            self._draw(lines[-max(1, rows - 2) :])
        self._next = time.monotonic() + FRAME_SECONDS

    def finish(self) -> None:
        """Draw the whole text and leave it on the screen."""
        with interrupts.deferred():
            self._fold()
            self._print(blocks(self._rest), shutil.get_terminal_size().columns)
            self._draw([])
            self._rest = ""

    def _thought_lines(self, columns: int) -> list[str]:
        """Return the last lines of the thought."""
        end = self._thought[-THOUGHT_LINES * columns :]
        lines = [part for line in end.split("\n") for part in wrap(line, max(1, columns - 1))]
        return [dim(line) for line in lines[-THOUGHT_LINES:]]

    def _fold(self) -> None:
        """Replace the thought by a line."""
        if self._thought:
            with interrupts.deferred():
                self._draw([dim(f"▸ thought, {plural(len(self._thought.split()), 'word')}; /thought shows it")])
                self._drawn, self._above, self._thought = [], True, ""

    def _print(self, finished: list[str], columns: int) -> None:
        for block in finished:
            if lines := self._lines(block, columns):
                self._draw(lines)
                self._drawn, self._above = [], True

    def _lines(self, block: str, columns: int) -> list[str]:
        lines = render_block(block, columns - 1)
        return ["", *lines] if lines and self._above else lines

    def _draw(self, lines: list[str]) -> None:
        """Replace what was drawn last. The cursor stays below it."""
        same = next((n for n, pair in enumerate(zip(lines, self._drawn, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(lines), len(self._drawn)) if same is None else same
        columns = shutil.get_terminal_size().columns
        # A terminal that became narrower has wrapped the lines that were drawn.
        back = sum(max(1, math.ceil(_width(line) / columns)) for line in self._drawn[same:])
        movement = f"\x1b[{back}A\x1b[J" if back else ""
        sys.stdout.write(movement + "".join(f"{line}\n" for line in lines[same:]))
        sys.stdout.flush()
        self._drawn = lines


def _width(line: str) -> int:
    """Return the columns of a line, without terminal codes."""
    return cell_len(_CODES.sub("", line))


@contextmanager
def _no_echo() -> Iterator[None]:
    """Keep keys pressed during an answer for the prompt, without echo between its lines."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    # Without NOFLSH, Ctrl-C would discard the keys that are not read yet.
    quiet = [*before[:3], before[3] & ~termios.ECHO | termios.NOFLSH, *before[4:]]

    def restore() -> None:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

    with interrupts.before_the_end(restore):
        try:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
            yield
        finally:
            restore()
