"""The one way to the terminal. What a file holds is shown as text: it moves no cursor, sets no title and is no markup.

Names are refused by the container if they are not printable. This is for all the rest: strings that a program returns,
what a language model says, file names, messages of libraries.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Drawing
from rich.segment import Segment
from rich.text import Text

from ..progress import OnProgress, Progress
from ..text import sanitize, size

GAP = 2  # spaces between columns
PROSE = 24  # columns that a text keeps before others go
NAME = 12  # and a name, once nothing else can go
# Where a line may end: not between a number and its unit.
_BREAK = re.compile(r"(?<![\d.]) +|(?<=[\d.]) +(?![kMG]?B\b|[mµ]?s\b|[x×%](?!\w)|tok/s|G(?:B|FLOP)/s)")
Cell = str | Text


@dataclass(frozen=True)
class Column:
    """`drop` is the order in which columns go when there is no room: the highest first, and 0 stays."""

    title: str
    drop: int = 0
    number: bool = False
    prose: bool = False


@dataclass
class OutputTable:
    columns: Sequence[Column]
    rows: list[tuple[Sequence[Text], str]] = field(default_factory=list)

    def add(self, *cells: Cell, style: str = "") -> None:
        """A row. Cells that are left out at its end are empty."""
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        self.rows.append(([_clean(cell) for cell in filled], style))


class Page:
    """What is printed, a line at a time, on a console `width` columns wide; None is as wide as it takes."""

    def __init__(self, console: Console, width: int | None) -> None:
        self._console = console
        self._width = width

    def text(self, text: Cell, style: str = "", indent: str = "") -> None:
        """A text, each of its lines wrapped between words; what follows the first line of each is indented."""
        for line in _clean(text).split("\n", allow_blank=True):
            for number, part in enumerate(wrap(line, self._width and self._width - len(indent))):
                self._line(Text(indent * (number > 0)) + part, style)

    def bullets(self, lines: Sequence[Cell]) -> None:
        for line in lines:
            first, *others = _clean(line).split("\n", allow_blank=True)
            self.text(Text(" • ") + first, indent="   ")
            for other in others:
                self.text(Text("   ") + other, indent="   ")

    def table(self, table: OutputTable) -> None:
        """A table, a blank line before it."""
        self._line(Text(""), "")
        shown, widths = fit(table, self._width)
        titles = [Text(table.columns[i].title) for i in shown]
        self._row(table, shown, widths, titles, "bold")
        for cells, style in table.rows:
            self._row(table, shown, widths, [cells[i] for i in shown], style)
        if left := [column.title for i, column in enumerate(table.columns) if i not in shown]:
            self.text(f"no room for: {', '.join(left)} (a wider terminal, a pipe or --json)", style="dim")

    def _row(
        self, table: OutputTable, shown: Sequence[int], widths: Sequence[int], cells: Sequence[Text], style: str
    ) -> None:
        columns = [table.columns[i] for i in shown]
        folded = [[*wrap(cell, width)] for cell, width in zip(cells, widths, strict=True)]
        for height in range(max(map(len, folded))):
            line = Text("")
            for column, parts, width in zip(columns, folded, widths, strict=True):
                part = parts[height] if height < len(parts) else Text("")
                free = Text(" " * (width - cell_len(part.plain)))
                line = line + (free + part if column.number else part + free) + Text(" " * GAP)
            self._line(line, style)

    def _line(self, line: Text, style: str) -> None:
        line.rstrip()
        line.stylize_before(style)
        self._console.print(line, soft_wrap=True)


def _clean(cell: Cell) -> Text:
    """What a file holds is shown as text: it moves no cursor and sets no title."""
    made = Text(cell) if isinstance(cell, str) else cell.copy()
    made.plain = sanitize(made.plain)
    return made


def fit(table: OutputTable, width: int | None) -> tuple[list[int], list[int]]:
    """The columns of a table that are shown in so many columns of a terminal, and how wide each is."""
    natural = [_natural(table, i) for i in range(len(table.columns))]
    shown = list(range(len(table.columns)))
    if width is None:
        return shown, natural
    least = [min(n, PROSE) if column.prose else n for n, column in zip(natural, table.columns, strict=True)]
    while _total([least[i] for i in shown]) > width and (goes := _next_to_go(table, shown)) is not None:
        shown.remove(goes)
    widths = {i: natural[i] for i in shown}
    _shrink(widths, width, lambda i: table.columns[i].prose, PROSE)
    _shrink(widths, width, lambda i: not table.columns[i].number, NAME)
    return shown, list(widths.values())


def _shrink(widths: dict[int, int], width: int, may: Callable[[int], bool], least: int) -> None:
    """Take from the widest columns that may be folded until all fit."""
    while (excess := _total(list(widths.values())) - width) > 0:
        wide = [i for i in widths if may(i) and widths[i] > least]
        if not wide:
            return
        widest = max(wide, key=lambda i: widths[i])
        widths[widest] = max(least, widths[widest] - excess)


def _natural(table: OutputTable, index: int) -> int:
    texts = [table.columns[index].title, *(cells[index].plain for cells, _ in table.rows)]
    return max(cell_len(line) for text in texts for line in text.split("\n"))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _next_to_go(table: OutputTable, shown: Sequence[int]) -> int | None:
    """The column that matters least. One by which alone two rows differ stays."""

    def different(columns: Sequence[int]) -> int:
        return len({tuple(cells[i].plain for i in columns) for cells, _ in table.rows})

    for goes in sorted(shown, key=lambda i: (-table.columns[i].drop, -i)):
        left = [i for i in shown if i != goes]
        if table.columns[goes].drop and different(left) == different(shown):
            return goes
    return None


def wrap(text: Text, width: int | None) -> Iterator[Text]:
    """Lines of at most so many columns: broken between words, never between a number and its unit; then anywhere."""
    for line in text.split("\n", allow_blank=True):
        rest = line
        while width is not None and cell_len(rest.plain) > width:
            end, begin = _break(rest.plain, max(1, width))
            yield rest[:end]
            rest = rest[begin:]
        yield rest


def _break(text: str, width: int) -> tuple[int, int]:
    """Where a line ends that is too long, and where the next begins."""
    best = None
    for found in _BREAK.finditer(text):
        if cell_len(text[: found.start()]) > width:
            break
        if text[: found.start()].strip():
            best = found.span()
    if best is not None:
        return best
    end = next(i for i in range(len(text), 0, -1) if cell_len(text[:i]) <= width or i == 1)
    return end, end


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
    made = _PipeConsole(highlight=False, markup=False, emoji=False, **options)
    made.push_render_hook(_SafeTextHook())
    return made


class _PipeConsole(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError from None  # which ends the command without a failure


class _SafeTextHook(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_SafeRenderable(renderable) for renderable in renderables]


class _SafeRenderable:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rendered: Iterable[Segment] = console.render(self.renderable, options)
        for text, style, control in rendered:
            yield Segment(text if control else sanitize(text), style, control)


SOON = 0.05  # seconds between two drawings of the same stage


@contextmanager
def bars(ticking: bool = True) -> Iterator[OnProgress]:
    """A callback that draws bars while the context lasts. Without a terminal, or in a dumb one, it draws nothing.

    With `ticking` a thread keeps the clocks going. Where time is measured nothing is drawn but at events.
    """
    console = open_console(stderr=True)
    hidden = not sys.stderr.isatty() or console.is_dumb_terminal
    columns = (
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
    )
    with Drawing(*columns, console=console, transient=True, disable=hidden, auto_refresh=ticking) as drawing:
        yield _StageBars(drawing)


class _StageBars:
    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing
        self._events: dict[str, Progress] = {}  # the last of each stage
        self._tasks: dict[str, TaskID] = {}
        self._drawn = 0.0

    def __call__(self, event: Progress) -> None:
        last = self._events.get(event.stage)
        if last is None:
            self._tasks[event.stage] = self._drawing.add_task(event.stage, total=None, amount="")
        elif event.done < last.done:  # the stage begins again, for another method
            self._drawing.reset(self._tasks[event.stage])
        self._events[event.stage] = event
        # What takes one step does not tell how far it is: its bar moves until it is full.
        total = None if event.total == 1 and event.done == 0 else max(event.total, 1)
        ended = event.done >= event.total
        done = total if ended else event.done
        self._drawing.update(self._tasks[event.stage], total=total, completed=done, amount=_amount(event))
        if ended or last is None or time.monotonic() - self._drawn > SOON:
            self._drawing.refresh()
            self._drawn = time.monotonic()


def _amount(event: Progress) -> str:
    if event.unit == "bytes":
        return f"{size(event.done)} of {size(event.total)}"
    amount = "" if event.unit == "steps" else f"{event.done} of {event.total} {event.unit}"
    return f"{amount}, {event.note}" if event.note else amount
