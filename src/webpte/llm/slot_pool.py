"""Caches of many sequences on a device: slots that lie one behind the other in every buffer of a method's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from ..progress import OnProgress, ignore
from ..runtime import Extent, Method, Program
from .rows import Row


class SlotPool(ABC):
    """A method and its slots, of which there can be more."""

    refusal = None
    reach = None  # its caches hold every position
    capacity: int  # tokens of a slot

    def __init__(self, program: Program, most_slots: int, progress: OnProgress) -> None:
        self.program = program
        self.most_slots = most_slots
        self.slots = 1
        self.method = self.make(self.slots, progress)
        self._recoveries = 0  # of methods that were replaced

    @abstractmethod
    def make(self, slots: int, progress: OnProgress) -> Method:
        """The method with so many slots."""

    def slots_for(self, wanted: int) -> int:
        """How many slots to make where so many are wanted."""
        return wanted

    @property
    def recoveries(self) -> int:
        return self._recoveries + self.method.recoveries

    def check_places(self, rows: Sequence[Row], steps: int = 1) -> None:
        """Refuse rows that are not in a slot, or will not be after further steps."""
        places = np.array(rows, np.int64)[:, 1:]  # (R, 2)
        if (places < 0).any() or (places >= (self.slots, self.capacity - steps + 1)).any():
            raise InputError(f"a row is outside {self.slots} slots of {self.capacity} tokens: {places.tolist()}")

    def copy(self, source: int, target: int, count: int) -> None:
        self.method.copy_extents(self.method, self._extents(source, target, count))

    def grow(self, slots: int) -> None:
        """Slots lie one behind the other, so what there is becomes the beginning of what there will be."""
        old, slots = self.method, self.slots_for(slots)
        new = self.make(slots, ignore)
        sizes = (buffer.nbytes for buffer in old.plan.buffers if buffer.kind == "state")
        new.copy_extents(old, [Extent(number, 0, 0, nbytes) for number, nbytes in enumerate(sizes)])
        self._recoveries += old.recoveries - new.recoveries
        self.method, self.slots = new, slots
        self.program.discard(old)

    def sizes(self, count: int) -> list[int]:
        return [extent.nbytes for extent in self._extents(0, 0, count)]

    def read(self, slot: int, count: int) -> list[memoryview]:
        return self.method.read_extents(self._extents(slot, slot, count))

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        self.method.write_extents(self._extents(slot, slot, count), pieces)

    def _extents(self, source: int, target: int, count: int) -> list[Extent]:
        """The first `count` rows of a slot, in every cache."""
        plan = self.method.plan
        caches = {plan.buffer_of[value_id]: value_id for value_id in plan.flow.state if value_id in plan.buffer_of}
        extents: list[Extent] = []
        for number, buffer in enumerate(plan.buffers):
            if buffer.kind == "state":
                slots, rows = plan.graph.tensor(caches[number]).dims[:2]
                row = plan.stored_bytes(caches[number]) // (slots * rows)
                extents.append(Extent(len(extents), source * rows * row, target * rows * row, count * row))
        return extents
