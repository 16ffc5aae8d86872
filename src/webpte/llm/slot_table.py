"""Which tokens every slot's cache holds, and who lives there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from .reach import Reach

WORTH_COPYING = 8  # tokens; fewer are computed along with what follows them for less than a copy takes


class Resident(Protocol):
    """Whoever has a slot: a sequence. One that is dropped leaves its slot to others."""

    slot: Slot | None


class Slot:
    """A cache for one sequence.

    Tokens are noted after the device has computed them and forgotten before their rows are overwritten, so that what
    is noted is true whatever interrupts a call. For the same reason, what a state that does not keep all positions
    loses by a pass is noted before it.
    """

    def __init__(self, number: int, reach: Reach | None = None) -> None:
        self.number = number
        self.reach = reach  # None: to any position
        self.tokens: list[int] = []
        self._kept_from = 0  # the first position that is held
        self.used = 0  # when it was last of use
        self._resident: weakref.ref[Resident] | None = None

    def usable(self, shared: int) -> int:
        """Of its first tokens, at most so many, those that a sequence can go on behind."""
        return shared if self.reach is None or self.reach.reaches(shared, self._kept_from) else 0

    def keep(self, count: int) -> None:
        """Go on behind the first `count` tokens, which are usable."""
        del self.tokens[count:]
        if not count:
            self._kept_from = 0

    def clear(self) -> None:
        self.keep(0)

    def take(self, tokens: Sequence[int]) -> None:
        """Its state is one that can go on behind these tokens now; whether behind fewer, is not known."""
        self.tokens[:] = tokens
        self._kept_from = max(0, len(tokens) - self.reach.needed) if self.reach is not None else 0

    def write(self, count: int) -> None:
        """A pass begins that computes so many tokens behind those that there are."""
        if self.reach is not None:
            self._kept_from = max(self._kept_from, self.reach.forgotten(len(self.tokens) + count))

    def mend(self) -> None:
        """After a pass that did not keep what it computed, begin anew if the state has lost too much by it."""
        if self.usable(len(self.tokens)) < len(self.tokens):
            self.clear()

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

    def __init__(self, count: int, reach: Reach | None = None) -> None:
        self._reach = reach
        self._slots = [Slot(number, reach) for number in range(count)]
        self._clock = 0

    def __len__(self) -> int:
        return len(self._slots)

    def grow(self, count: int) -> None:
        self._slots += [Slot(number, self._reach) for number in range(len(self._slots), count)]

    def touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock

    def lose(self) -> None:
        """Nothing is cached any more, as after the loss of a device."""
        for slot in self._slots:
            slot.clear()

    def forget(self) -> None:
        """Let go of what sequences have left that are gone."""
        for slot in self._slots:
            if slot.resident is None:
                slot.clear()

    def best(self, wanted: Sequence[int]) -> tuple[Slot, int]:
        """The slot that can go on behind most of `wanted`, and behind how much; of equals one where nobody lives."""
        found = [(_usable(slot, wanted), slot.resident is None, slot) for slot in self._slots]
        count, _, slot = max(found, key=lambda entry: entry[:2])
        return slot, count

    def place(self, resident: Resident, wanted: Sequence[int], idle: Callable[[Resident], bool]) -> Place | None:
        """A slot for a sequence of these tokens: its own, or one where nobody lives, or one whose resident is idle."""
        source, count = self.best(wanted)
        if resident.slot is None and source.resident is None and count >= WORTH_COPYING:
            lost = len(source.tokens) - count  # of a conversation that may go on
            if lost < WORTH_COPYING or not self.has_vacant(empty=True):
                return Place(source, source, count)
        slot = resident.slot or self._vacant() or self._idle(idle)
        if slot is None:
            return None
        there = _usable(slot, wanted)
        return Place(slot, source, count) if count >= there + WORTH_COPYING else Place(slot, slot, there)

    def has_vacant(self, empty: bool = False) -> bool:
        """Whether there is a slot where nobody lives; with `empty` one that holds nothing either."""
        found = self._vacant()
        return found is not None and not (empty and found.tokens)

    def _vacant(self) -> Slot | None:
        """An empty slot, or the one whose contents were longest of no use."""
        free = [slot for slot in self._slots if slot.resident is None]
        return min(free, key=lambda slot: (bool(slot.tokens), slot.used), default=None)

    def _idle(self, idle: Callable[[Resident], bool]) -> Slot | None:
        found = [slot for slot in self._slots if slot.resident is not None and idle(slot.resident)]
        return min(found, key=lambda slot: slot.used, default=None)


def _usable(slot: Slot, wanted: Sequence[int]) -> int:
    return slot.usable(common_prefix(slot.tokens, wanted))


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
