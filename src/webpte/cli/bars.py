"""Progress events as bars on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..progress import OnProgress
from ..progress import Progress as Event
from ..tools.text import size
from .terminal import open_console


@contextmanager
def bars() -> Iterator[OnProgress]:
    """A callback that draws a bar per stage. Without a terminal it prints nothing."""
    columns = (
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
    )
    console = open_console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(event: Event) -> None:
            amount = _amount(event)
            if event.stage not in tasks:
                for task in tasks.values():
                    progress.stop_task(task)
                tasks[event.stage] = progress.add_task(event.stage, total=event.total or 1, amount=amount)
            progress.update(tasks[event.stage], completed=event.done, amount=amount)

        yield show


@contextmanager
def line() -> Iterator[OnProgress]:
    """A callback that writes a line on a terminal: nothing is redrawn between events, so times are not disturbed."""
    terminal = sys.stderr.isatty()

    def show(event: Event) -> None:
        if terminal:
            print(f"\r\x1b[K{event.stage}: {_amount(event)}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _amount(event: Event) -> str:
    if event.unit == "bytes":
        return f"{size(event.done)} of {size(event.total)}"
    if event.unit == "steps":
        return f"step {event.done + 1} of {event.total}"
    return f"{event.done} of {event.total} {event.unit}"
