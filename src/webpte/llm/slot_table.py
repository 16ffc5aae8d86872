"""Which tokens every slot's cache holds, and who lives there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

WORTH_COPYING = 8  # tokens; fewer are computed along with what follows them for less than a copy takes


class Resident(Protocol):
    """Whoever has a slot: a sequence. One that is dropped leaves its slot to others."""

    slot: Slot | None


class Slot:
    """A cache for one sequence.

    Tokens are noted after the device has computed them and forgotten before their rows are overwritten, so that what
    is noted is true whatever interrupts a call.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.used = 0  # when it was last of use
        self._resident: weakref.ref[Resident] | None = None

    @property
    def resident(self) -> Resident | None:
        return self._resident() if self._resident is not None else None

    def give_to(self, resident: Resident) -> None:
        self.vacate()
        self._resident = weakref.ref(resident)
        resident.slot = self

    def vacate(self) -> None:
        """Nobody lives here any more; what is cached stays, for whoever begins alike."""
        resident, self._resident = self.resident, None
        if resident is not None:
            resident.slot = None


class Place(NamedTuple):
    """Where a sequence can live, and where the first of its tokens are cached; there already, if that is the slot."""

    slot: Slot
    source: Slot
    shared: int


class SlotTable:
    """All slots of a runner."""

    def __init__(self, count: int) -> None:
        self._slots = [Slot(number) for number in range(count)]
        self._clock = 0

    def __len__(self) -> int:
        return len(self._slots)

    def grow(self, count: int) -> None:
        self._slots += [Slot(number) for number in range(len(self._slots), count)]

    def touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock

    def lose(self) -> None:
        """Nothing is cached any more, as after the loss of a device."""
        for slot in self._slots:
            slot.tokens.clear()

    def forget(self) -> None:
        """Let go of what sequences have left that are gone."""
        for slot in self._slots:
            if slot.resident is None:
                slot.tokens.clear()

    def best(self, wanted: Sequence[int]) -> tuple[Slot, int]:
        """The slot that begins like `wanted` for the longest, and for how long; of equals one where nobody lives."""
        found = [(common_prefix(slot.tokens, wanted), slot.resident is None, slot) for slot in self._slots]
        count, _, slot = max(found, key=lambda entry: entry[:2])
        return slot, count

    def place(self, resident: Resident, wanted: Sequence[int], idle: Callable[[Resident], bool]) -> Place | None:
        """A slot for a sequence of these tokens: its own, or one where nobody lives, or one whose resident is idle."""
        source, count = self.best(wanted)
        if resident.slot is None and source.resident is None and count >= WORTH_COPYING:
            return Place(source, source, count)
        slot = resident.slot or self._vacant() or self._idle(idle)
        if slot is None:
            return None
        there = common_prefix(slot.tokens, wanted)
        return Place(slot, source, count) if count >= there + WORTH_COPYING else Place(slot, slot, there)

    def has_vacant(self) -> bool:
        return self._vacant() is not None

    def _vacant(self) -> Slot | None:
        """An empty slot, or the one whose contents were longest of no use."""
        free = [slot for slot in self._slots if slot.resident is None]
        return min(free, key=lambda slot: (bool(slot.tokens), slot.used), default=None)

    def _idle(self, idle: Callable[[Resident], bool]) -> Slot | None:
        found = [slot for slot in self._slots if slot.resident is not None and idle(slot.resident)]
        return min(found, key=lambda slot: slot.used, default=None)


def common_prefix(known: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens two lists begin with alike. Comparing slices keeps the loop out of Python."""
    low, high = 0, min(len(known), len(wanted))
    if tuple(known[:high]) == tuple(wanted[:high]):
        return high
    while high - low > 1:  # the first `low` are alike, the first `high` are not
        middle = (low + high) // 2
        if tuple(known[low:middle]) == tuple(wanted[low:middle]):
            low = middle
        else:
            high = middle
    return low
