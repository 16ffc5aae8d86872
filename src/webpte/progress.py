"""Progress events and cancellation of everything that takes long: loading, exporting, tuning, generating."""

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
    note: str = ""  # additional text, such as a rate
    seconds_left: float | None = None  # where the sender knows better than the time so far: not all steps cost the same
    subject: str = ""  # the name of the file or model, where the stage has one


OnProgress = Callable[[Progress], None]


class _Ignore:
    """Discards events."""

    def __call__(self, event: Progress) -> None:
        pass

    def __repr__(self) -> str:  # in signatures, which `help` shows
        return "ignore"


ignore: OnProgress = _Ignore()


class CancelToken:
    """Pass it as `cancel` to cancel work from any thread. The work checks it between steps.

    A cancelled operation raises `CancelledError` and deletes its partial results. A cancelled generation keeps its
    text, and its finish reason is "cancelled".
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


def cancellable(progress: OnProgress, cancel: CancelToken | None) -> OnProgress:
    """Return a progress callback that raises `CancelledError` at the first event after `cancel` was set."""
    if not callable(progress):
        raise InputError(
            argument="progress",
            expected="a function that takes a Progress",
            got=type(progress).__name__,
            code="wrong_type",
        )
    if cancel is None:
        return progress
    if not isinstance(cancel, CancelToken):
        raise InputError(
            argument="cancel", expected="a webpte.CancelToken or None", got=type(cancel).__name__, code="wrong_type"
        )

    def check(event: Progress) -> None:
        if cancel.cancelled:
            position = f"{event.done} of {event.total} {event.unit}"
            raise CancelledError(
                f"cancelled in stage {event.stage!r} at {position}", hint="Call again with a new CancelToken."
            )
        progress(event)

    return check
