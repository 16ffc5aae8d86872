"""Markdown as a terminal shows it, and where a text that is still growing is finished."""

from __future__ import annotations

import itertools
import re
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax

from ..terminal import open_console

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
        console.print(_Shown(block))
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


class _Shown(Markdown):
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
