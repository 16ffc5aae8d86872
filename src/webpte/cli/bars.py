"""Progress as bars on stderr, one for each stage. Every bar ends full: the last event of a stage is always drawn."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Drawing

from ..progress import OnProgress, Progress
from ..tools.text import size
from .terminal import open_console

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
        yield _Stages(drawing)


class _Stages:
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
