"""Output for people: texts and tables that fit the terminal, and progress bars on stderr.

A table that is too wide drops whole columns, the least important first, and names them; a cell is never truncated.
Columns that remain are folded: prose between words, names anywhere, numbers never. In a file or a pipe, lines are not
folded. All text is sanitized: strings of a program, a model or a library cannot move the cursor or set a title.
"""

from __future__ import annotations

import math
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
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.progress import BarColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Drawing
from rich.segment import Segment
from rich.text import Text

from ..environment import variable
from ..progress import OnProgress, Progress
from ..text import sanitize, size
from . import interrupts
from .output import say

GAP = 2  # spaces between columns
MIN_PROSE_WIDTH = 24  # of a prose column before other columns are dropped
MIN_NAME_WIDTH = 12  # of a name column, once no other column can be dropped
# Where a line may break: not between a number and its unit.
_BREAK = re.compile(r"(?<![\d.]) +|(?<=[\d.]) +(?![kMG]?B\b|[mµ]?s\b|[x×%](?!\w)|tok/s|G(?:B|FLOP)/s)")
Cell = str | Text


@dataclass(frozen=True)
class Column:
    """A column. Columns are dropped by descending `drop` if the table is too wide; 0 is never dropped."""

    title: str
    drop: int = 0
    number: bool = False
    prose: bool = False


@dataclass
class OutputTable:
    """Rows of cells under titled columns."""

    columns: Sequence[Column]
    rows: list[tuple[Sequence[Text], str]] = field(default_factory=list)

    def add(self, *cells: Cell, style: str = "") -> None:
        """Add a row. Missing cells at its end are empty."""
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        self.rows.append(([_clean(cell) for cell in filled], style))


class Page:
    """Prints texts and tables on a console of `width` columns; None does not fold lines."""

    def __init__(self, console: Console, width: int | None) -> None:
        self._console = console
        self._width = width

    def text(self, text: Cell, style: str = "", indent: str = "") -> None:
        """Print a text, with each line wrapped between words and continuation lines indented."""
        for line in _clean(text).split("\n", allow_blank=True):
            for number, part in enumerate(wrap(line, self._width and self._width - len(indent))):
                self._line(Text(indent * (number > 0)) + part, style)

    def bullets(self, lines: Sequence[Cell]) -> None:
        """Print a bulleted list."""
        for line in lines:
            first, *others = _clean(line).split("\n", allow_blank=True)
            self.text(Text(" • ") + first, indent="   ")
            for other in others:
                self.text(Text("   ") + other, indent="   ")

    def table(self, table: OutputTable) -> None:
        """Print a blank line and a table."""
        self._line(Text(""), "")
        kept, widths = fit(table, self._width)
        titles = [Text(table.columns[i].title) for i in kept]
        self._row(table, kept, widths, titles, "bold")
        for cells, style in table.rows:
            self._row(table, kept, widths, [cells[i] for i in kept], style)
        if dropped := [column.title for i, column in enumerate(table.columns) if i not in kept]:
            self.text(f"not shown: {', '.join(dropped)} (use a wider terminal, a pipe or --json)", style="dim")

    def _row(
        self, table: OutputTable, kept: Sequence[int], widths: Sequence[int], cells: Sequence[Text], style: str
    ) -> None:
        columns = [table.columns[i] for i in kept]
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
    text = Text(cell) if isinstance(cell, str) else cell.copy()
    text.plain = sanitize(text.plain)
    return text


def fit(table: OutputTable, width: int | None) -> tuple[list[int], list[int]]:
    """Return the columns of a table that fit a terminal of `width` columns, and the width of each."""
    natural = [_natural(table, i) for i in range(len(table.columns))]
    kept = list(range(len(table.columns)))
    if width is None:
        return kept, natural
    minimum = [min(n, MIN_PROSE_WIDTH) if column.prose else n for n, column in zip(natural, table.columns, strict=True)]
    while _total([minimum[i] for i in kept]) > width and (dropped := _next_to_drop(table, kept)) is not None:
        kept.remove(dropped)
    widths = {i: natural[i] for i in kept}
    _shrink(widths, width, lambda i: table.columns[i].prose, MIN_PROSE_WIDTH)
    _shrink(widths, width, lambda i: not table.columns[i].number, MIN_NAME_WIDTH)
    return kept, list(widths.values())


def _shrink(widths: dict[int, int], width: int, may: Callable[[int], bool], minimum: int) -> None:
    """Narrow the widest columns that may be folded until all fit."""
    while (excess := _total(list(widths.values())) - width) > 0:
        wide = [i for i in widths if may(i) and widths[i] > minimum]
        if not wide:
            return
        widest = max(wide, key=lambda i: widths[i])
        widths[widest] = max(minimum, widths[widest] - excess)


def _natural(table: OutputTable, index: int) -> int:
    texts = [table.columns[index].title, *(cells[index].plain for cells, _ in table.rows)]
    return max(cell_len(line) for text in texts for line in text.split("\n"))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _next_to_drop(table: OutputTable, kept: Sequence[int]) -> int | None:
    """Return the least important column. A column that alone distinguishes two rows stays."""

    def different(columns: Sequence[int]) -> int:
        return len({tuple(cells[i].plain for i in columns) for cells, _ in table.rows})

    for candidate in sorted(kept, key=lambda i: (-table.columns[i].drop, -i)):
        others = [i for i in kept if i != candidate]
        if table.columns[candidate].drop and different(others) == different(kept):
            return candidate
    return None


def wrap(text: Text, width: int | None) -> Iterator[Text]:
    """Yield lines of at most `width` columns, broken between words if possible, never between a number and its unit."""
    for line in text.split("\n", allow_blank=True):
        rest = line
        while width is not None and cell_len(rest.plain) > width:
            end, begin = _break(rest.plain, max(1, width))
            yield rest[:end]
            rest = rest[begin:]
        yield rest


def _break(text: str, width: int) -> tuple[int, int]:
    """Return where a line that is too long ends, and where the next one starts."""
    best = None
    for match in _BREAK.finditer(text):
        if cell_len(text[: match.start()]) > width:
            break
        if text[: match.start()].strip():
            best = match.span()
    if best is not None:
        return best
    end = next(i for i in range(len(text), 0, -1) if cell_len(text[:i]) <= width or i == 1)
    return end, end


def open_page() -> Page:
    """Return a page on stdout, as wide as its terminal. Lines to a file or a pipe are not folded."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return Page(open_console(), width)


def open_console(**options: Any) -> Console:
    """Return a console that prints strings without markup, emoji codes and control characters.

    With NO_COLOR, with TERM=dumb and without a terminal it uses no colors and no bold letters.
    """
    if variable("NO_COLOR"):
        options["color_system"] = None
    console = _PipeConsole(highlight=False, markup=False, emoji=False, **options)
    console.push_render_hook(_SafeTextHook())
    return console


class _PipeConsole(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError from None  # ends the command without an error


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


MIN_REDRAW_SECONDS = 0.05  # between two drawings of the same stage
SHORT_STAGES = ("read", "upload", "compile", "prepare", "prompt", "run", "generate")  # that print no lines
# By the first word of a stage, what its line says: a verb, and what it is done to if the event names no subject.
STAGE_WORDS = {
    "build": ("building", "the program"),
    "calibrate": ("calibrating", "layer by layer"),
    "choose": ("choosing", "formats"),
    "compare": ("comparing", "results"),
    "decode": ("measuring", "decoding"),
    "delegate": ("partitioning", "the graph"),
    "edge": ("converting", "the graph"),
    "evaluate": ("evaluating", "the model"),
    "fetch": ("downloading", "the file"),
    "hash": ("hashing", "the file"),
    "measure": ("measuring", "the program"),
    "plan": ("planning", "kernels"),
    "prefill": ("measuring", "prefill"),
    "prepare": ("preparing", "the model"),
    "profile": ("profiling", "the method"),
    "quality": ("measuring", "the quality"),
    "quantize": ("quantizing", "layers"),
    "read": ("reading", "the model"),
    "report": ("measuring", "the device"),
    "rows": ("computing", "the table"),
    "trace": ("tracing", "the model"),
    "transcribe": ("transcribing", "the recording"),
    "tune": ("tuning", "kernels"),
    "write": ("writing", "the program"),
}
LINE_SECONDS = 30.0  # between two lines of the same stage
MIN_ESTIMATE_SECONDS = 2.0  # of a stage before its end is estimated


@contextmanager
def bars(ticking: bool = True) -> Iterator[OnProgress]:
    """Return a progress callback that draws one bar for each stage until the context ends.

    Every bar ends full: the last event of a stage is always drawn. Without a terminal, or in a dumb one, each long
    stage prints a line instead. With `ticking`, a thread updates the clocks; without it, bars are drawn at events only,
    so that measurements are not disturbed.
    """
    console = open_console(stderr=True)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        yield StageLines()
        return
    columns = (
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}", markup=False),
        _TimeColumn(),
    )
    drawing = _ResizableBars(*columns, console=console, transient=True, auto_refresh=ticking)
    with interrupts.before_the_end(drawing.erase), drawing:
        yield _StageBars(drawing)


class StageLines:
    """A progress callback that prints a line on stderr when a long stage begins, and another one every half minute.

    Loading a program and calling it are short: output for scripts stays free of their stages.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._printed: dict[str, tuple[float, float]] = {}  # stage -> when it began, and when its last line was printed

    def __call__(self, event: Progress) -> None:
        if event.stage in SHORT_STAGES and event.unit != "steps":
            return
        now = self._clock()
        name = _stage_name(event)
        began, last = self._printed.get(name, (now, None))
        if last is None:
            say(_stage_line(event), error=True)
        elif now - last >= LINE_SECONDS and event.done < event.total:
            left = (now - began) * (event.total - event.done) / event.done if event.done else None
            say(_stage_line(event, left), error=True)
        else:
            return
        self._printed[name] = (began, now)


def _stage_name(event: Progress) -> str:
    """Return what a stage does, to what. The steps of a stage may have names of their own, in the note."""
    first, _, rest = event.stage.partition(" ")
    words = STAGE_WORDS.get(first)
    name = f"{words[0]} {event.subject or rest or words[1]}" if words is not None else event.stage
    return f"{name}: {event.note}" if event.unit == "steps" and event.note else name


def _stage_line(event: Progress, left: float | None = None) -> str:
    """Return the name of a stage and its amount; later lines also say how much is done, and the time left."""
    total = size(event.total) if event.unit == "bytes" else f"{event.total:,} {event.unit}"
    line = _stage_name(event) if event.unit == "steps" else f"{_stage_name(event)}: {total}"
    if left is None:
        return line
    # Of the first percent the start of the stage is most, which says little about the rest.
    estimate = f", about {_rounded(left)} left" if event.done * 100 >= event.total else ""
    return f"{line}, {event.done / event.total:.0%} done{estimate}"


def _rounded(seconds: float) -> str:
    """Return an estimate of seconds in the largest unit of which it has at least two."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


class _ResizableBars(Drawing):
    """Bars that are redrawn in place after the terminal became narrower."""

    def get_renderable(self) -> RenderableType:
        shape = self._shape()
        if shape is not None and self.console.width < shape[0]:
            # The terminal has wrapped each line that was drawn, and rich moves the cursor up by the lines it knows.
            rows = shape[1] * math.ceil(shape[0] / self.console.width)
            self.live._live_render._shape = (self.console.width, rows)
        return super().get_renderable()

    def erase(self) -> None:
        """Erase the bars, for a process that ends at once. Rich's own lock may be held by another thread."""
        if (shape := self._shape()) is not None:
            codes = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (shape[1] - 1)
            os.write(sys.stderr.fileno(), codes.encode())

    def _shape(self) -> tuple[int, int] | None:
        """Return columns and rows of what was drawn last."""
        return self.live._live_render._shape if hasattr(self, "live") else None


class _TimeColumn(TimeElapsedColumn):
    """The elapsed time of a stage, and its time left as stated or estimated at the last event."""

    def render(self, task: Task) -> Text:
        elapsed, end = super().render(task), task.fields["end"]
        if end is None or task.finished:
            return elapsed
        minutes, seconds = divmod(max(0, round(end - time.monotonic())), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return elapsed + Text(f", {clock} left")


class _StageBars:
    """A progress callback that draws a bar for each stage."""

    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing
        self._events: dict[str, Progress] = {}  # the last event of each stage
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}  # monotonic seconds
        self._redrawn = 0.0

    def __call__(self, event: Progress) -> None:
        if event.total == 0:  # nothing to do: no bar
            return
        now = time.monotonic()
        last = self._events.get(event.stage)
        if last is None:
            self._tasks[event.stage] = self._drawing.add_task(event.stage, total=None, amount="", end=None)
            self._started[event.stage] = now
        elif event.done < last.done:  # the stage starts again, for another method
            self._drawing.reset(self._tasks[event.stage])
            self._started[event.stage] = now
        self._events[event.stage] = event
        # A stage of one step has no position: its bar pulses until it is full.
        total = None if event.total == 1 and event.done == 0 else event.total
        ended = event.done >= event.total
        self._drawing.update(
            self._tasks[event.stage],
            total=total,
            completed=total if ended else event.done,
            amount=_amount(event),
            end=self._estimated_end(event, now),
        )
        if ended or last is None or now - self._redrawn > MIN_REDRAW_SECONDS:
            self._drawing.refresh()
            self._redrawn = time.monotonic()

    def _estimated_end(self, event: Progress, now: float) -> float | None:
        if event.seconds_left is not None:
            return now + event.seconds_left
        elapsed = now - self._started[event.stage]
        if not 0 < event.done < event.total or elapsed < MIN_ESTIMATE_SECONDS:
            return None
        return now + elapsed * (event.total - event.done) / event.done


def _amount(event: Progress) -> str:
    if event.unit == "bytes":
        return f"{size(event.done)} of {size(event.total)}"
    amount = "" if event.unit == "steps" else f"{event.done} of {event.total} {event.unit}"
    return ", ".join(filter(None, (amount, event.note)))
