"""The one way to the terminal. What a file holds is shown as text: it moves no cursor, sets no title and is no markup.

Names are refused by the container if they are not printable. This is for all the rest: strings that a program returns,
what a language model says, file names, messages of libraries.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from ..tools.text import plain
from .tables import Page


def open_page() -> Page:
    """Standard output, as wide as its terminal; a file or a pipe takes whole lines, however long."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return Page(open_console(), width)


def open_console(**options: Any) -> Console:
    """A console that takes strings as they are: no markup, no emoji codes, no control characters.

    With NO_COLOR, as with TERM=dumb and without a terminal, it has neither colours nor bold letters.
    """
    if os.environ.get("NO_COLOR"):
        options["color_system"] = None
    made = _Quiet(highlight=False, markup=False, emoji=False, **options)
    made.push_render_hook(_Plain())
    return made


class _Quiet(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError from None  # which ends the command without a failure


class _Plain(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(renderable) for renderable in renderables]


class _Shown:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rendered: Iterable[Segment] = console.render(self.renderable, options)
        for text, style, control in rendered:
            yield Segment(text if control else plain(text), style, control)
