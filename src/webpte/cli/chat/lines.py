"""Where messages come from: a terminal with line editing, a plain one, or a pipe."""

from __future__ import annotations

import os
import select
import sys
from typing import Protocol

from ...errors import InputError, UnsupportedError
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
