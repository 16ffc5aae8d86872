"""One event for everything that takes long, and one token that stops it: loading, exporting, tuning, answering."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .errors import CancelledError, InputError


@dataclass(frozen=True)
class Progress:
    """How far a stage is. The total is known before the first event of a stage."""

    stage: str  # "compile", "upload", ...
    done: int
    total: int
    unit: str  # "kernels", "bytes", "steps"
    note: str = ""  # what else there is to tell, such as a rate


OnProgress = Callable[[Progress], None]


def ignore(event: Progress) -> None:
    """For callers who do not want to know."""


class CancelToken:
    """Given as `cancel` to anything that takes long. Set once, by any thread; looked at between steps.

    Work that would have given something ends with `CancelledError` and leaves nothing behind; an answer ends with the
    text it has, and its usage says "cancelled".
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


def stoppable(progress: OnProgress, cancel: CancelToken | None) -> OnProgress:
    """Every event is a place to stop at: whoever tells how far the work is asks whether to go on."""
    if not callable(progress):
        raise InputError(f"progress is a function that is called with each Progress, not {type(progress).__name__}")
    if cancel is None:
        return progress
    if not isinstance(cancel, CancelToken):
        raise InputError(f"cancel is a webpte.CancelToken or None, not {type(cancel).__name__}")

    def ask(event: Progress) -> None:
        if cancel.cancelled:
            at = f"{event.done} of {event.total} {event.unit}"
            raise CancelledError(f"cancelled in {event.stage!r}, at {at}. Call again with another CancelToken to go on")
        progress(event)

    return ask
