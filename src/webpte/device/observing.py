"""Who watches a call: told what it does, step by step, and asked to submit its work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..plan import CallValues, Schedule
from .recording import Stage

if TYPE_CHECKING:
    from .gpu import Gpu


class Observer:
    """Of the calls of one method; see `Method.observed`. This one lets everything be as it always is."""

    def phase(self, name: str) -> None:
        """From now on the call does this; with an empty name, nothing that has one."""

    def prepared(self, schedule: Schedule, live: CallValues) -> None:
        """A segment of the method is about to run."""

    def submit(self, gpu: Gpu, stages: Sequence[Stage]) -> int:
        """Submit work of the call; gives the number of the submit, as `Gpu.submit` does."""
        return gpu.submit(stages, self.phase)

    def moved(self, to_device: int, to_host: int) -> None:
        """So many bytes crossed, uniforms included."""
