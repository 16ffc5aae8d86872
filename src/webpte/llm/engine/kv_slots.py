"""KV-cache slots: which tokens each slot caches, which sequence owns it, and which slot a request gets."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ...errors import OutOfMemory
from .embeddings import whole_inputs
from .speculation import MAX_DRAFTS

logger = logging.getLogger(__name__)
MIN_COPY_TOKENS = 8  # computing fewer tokens beside those that follow costs less than a copy
MIN_SAVED_TOKENS = 16  # between two checkpoints of a slot


class CacheWindow(NamedTuple):
    """How far back a cache reaches that does not keep every position: a ring, or a recurrent state.

    A sequence cannot continue after a token whose predecessors are overwritten; they are computed again.
    """

    needed: int  # positions before a token that computing it reads
    held: int  # latest positions that the cache holds

    def first_kept(self, end: int) -> int:
        """Return the first position that is held after positions before `end` were written one by one."""
        return max(0, end - self.held)

    def can_continue(self, count: int, first_kept: int) -> bool:
        """Return whether the token after the first `count` can be computed from the positions since `first_kept`."""
        return first_kept <= max(0, count - self.needed)


LAST_TOKEN_ONLY = CacheWindow(0, 0)  # a recurrent state: it is that of the last token


class CacheBackend(Protocol):
    """The part of a model runner that holds the caches."""

    @property
    def num_slots(self) -> int: ...

    @property
    def cache_window(self) -> CacheWindow | None: ...

    @property
    def num_checkpoints(self) -> int: ...

    def save(self, slot: int, checkpoint: int) -> None: ...

    def restore(self, slot: int, checkpoint: int) -> None: ...

    def copy(self, source: int, target: int, count: int, checkpoint: int | None = None) -> None: ...

    def grow(self, num_slots: int) -> None: ...


class SlotOwner(Protocol):
    """A sequence. If it is dropped, its slot becomes free."""

    slot: Slot | None


class Slot:
    """The cache of one sequence.

    Tokens are recorded after the device has computed them and removed before their rows are overwritten. So the record
    is true whatever interrupts a step. If the cache keeps only a window of positions, what a step will overwrite is
    recorded before the step.
    """

    def __init__(self, number: int, window: CacheWindow | None = None) -> None:
        self.number = number
        self.window = window  # None: the cache keeps every position
        self.tokens: list[int] = []
        self.key: Hashable = 0  # of the requests for which the tokens were computed
        self._first_kept = 0  # the first position that the cache still holds
        self.checkpoints: dict[int, int] = {}  # where copies of the state are, by the number of tokens before them
        self.branch: int | None = None  # the tokens that another prompt shared, which further ones may share too
        self.image_ends: Sequence[int] = ()  # the tokens up to each image of the prompt, which others may share too
        self.latest: int | None = None  # the checkpoint that the next one of `save_before` replaces
        self.last_used = 0
        self._owner: weakref.ref[SlotOwner] | None = None

    def continues_at(self, count: int) -> bool:
        """Return whether a sequence can continue after the first `count` tokens with the state as it is."""
        return self.window is None or self.window.can_continue(count, self._first_kept)

    def usable(self, count: int) -> int:
        """Return after how many of the first `count` tokens a sequence can continue: all, or those of a checkpoint."""
        if self.continues_at(count):
            return count
        return max((saved for saved in self.checkpoints if saved <= count), default=0)

    def branch_at(self, count: int) -> bool:
        """Let the slot stop for a checkpoint after `count` tokens. Return False if it has gone past them."""
        done = len(self.tokens)
        if done >= count:
            return False
        self.branch = min(count, self.branch) if self.branch is not None and self.branch > done else count
        return True

    @property
    def next_stop(self) -> int | None:
        """Return after how many tokens a step of the prompt ends, because the state there is saved."""
        done = len(self.tokens)
        stops = (self.branch, *self.image_ends)
        return min((stop for stop in stops if stop is not None and stop > done), default=None)

    def keeps(self, count: int) -> bool:
        """Return whether a sequence can go back to where it is after `count` more tokens."""
        done = len(self.tokens)
        return self.window is None or self.window.can_continue(done, self.window.first_kept(done + count))

    def can_lose(self, count: int) -> bool:
        """Return whether few tokens are computed again if up to `count` more tokens are dropped."""
        near = max(self.checkpoints, default=0) + 2 * MIN_SAVED_TOKENS
        return self.keeps(count) or len(self.tokens) + count <= near

    def checkpoint_at(self, count: int) -> int | None:
        """Return the checkpoint to continue from after `count` usable tokens; None if the state is still there."""
        return None if self.continues_at(count) else self.checkpoints.get(count)

    def truncate(self, count: int) -> None:
        """Keep the first `count` tokens, whose state is there."""
        del self.tokens[count:]
        self.checkpoints = {saved: number for saved, number in self.checkpoints.items() if saved <= count}
        if not count:
            self._first_kept = 0

    def restored(self, count: int) -> None:
        """Record that the state is that of the checkpoint after the first `count` tokens."""
        self.truncate(count)
        self._first_kept = self._first_needed(count)

    def _first_needed(self, count: int) -> int:
        return max(0, count - self.window.needed) if self.window is not None else 0

    def clear(self) -> None:
        self.truncate(0)

    def assign(self, tokens: Sequence[int]) -> None:
        """Record that the cache was replaced by one of exactly these tokens."""
        self.tokens[:] = tokens
        self.checkpoints.clear()
        self._first_kept = self._first_needed(len(tokens))

    def before_write(self, count: int) -> None:
        """Record which positions a step overwrites that computes `count` more tokens."""
        if self.window is not None:
            self._first_kept = max(self._first_kept, self.window.first_kept(len(self.tokens) + count))

    @property
    def owner(self) -> SlotOwner | None:
        return self._owner() if self._owner is not None else None

    def give_to(self, owner: SlotOwner) -> None:
        self.release()
        self._owner = weakref.ref(owner)
        owner.slot = self

    def release(self) -> None:
        """Make the slot free. Its contents stay, for a prompt with the same beginning."""
        owner, self._owner = self.owner, None
        if owner is not None:
            owner.slot = None


class Placement(NamedTuple):
    """A slot for a sequence, and the slot that caches its first tokens, which may be the same."""

    slot: Slot
    source: Slot
    num_cached: int


class KvSlots:
    """All slots of a runner. They grow up to `max_slots`, or to what memory allows.

    With `keep_prefixes`, slots grow before a free slot that still caches a prompt is reused.
    """

    def __init__(self, backend: CacheBackend, max_slots: int, *, keep_prefixes: bool = False) -> None:
        self._backend = backend
        self.max_slots = max_slots
        self._keep_prefixes = keep_prefixes
        self._slots = [Slot(number, backend.cache_window) for number in range(backend.num_slots)]
        self._clock = 0
        self.evictions = 0  # sequences that lost their cache to another one

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def window(self) -> CacheWindow | None:
        return self._backend.cache_window

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is cached."""
        return not any(slot.tokens for slot in self._slots)

    def touch(self, slot: Slot) -> None:
        """Record a use: the least recently used slot is reused first."""
        self._clock += 1
        slot.last_used = self._clock

    def invalidate(self) -> None:
        """Record that nothing is cached any more, as after the loss of a device."""
        for slot in self._slots:
            slot.clear()

    def reset_free(self) -> None:
        """Forget what free slots still cache."""
        for slot in self._slots:
            if slot.owner is None:
                slot.clear()

    def lookup_prefix(self, tokens: Sequence[int], key: Hashable) -> tuple[Slot, int]:
        """Return the slot that caches most of the beginning of `tokens`, and how much. A free slot wins a tie."""
        prefixes = [(_usable_prefix(slot, tokens, key), slot.owner is None, slot) for slot in self._slots]
        count, _, slot = max(prefixes, key=lambda entry: entry[:2])
        return slot, count

    def allocate(
        self,
        owner: SlotOwner,
        tokens: Sequence[int],
        is_idle: Callable[[SlotOwner], bool],
        key: Hashable = 0,
        image_ends: Iterable[int] = (),
    ) -> int | None:
        """Give `owner` a slot with as many of `tokens` as any slot caches. Return how many, or None without a slot.

        Tokens that were computed for requests of another key are other tokens. The state is saved at `image_ends`.

        Only a sequence for which `is_idle` is true can lose its slot.
        """
        if owner.slot is None and (self._free() is None or (self._keep_prefixes and not self._has_empty())):
            self._grow()
        placement = self._place(owner, tokens, is_idle, key)
        if placement is None:
            return None
        slot, source, count = placement
        if slot.owner is not owner:
            self.evictions += slot.owner is not None
            slot.give_to(owner)
        slot.branch = self._branch(tokens, count, key)
        slot.image_ends = self._spaced(image_ends, count)
        if source is not slot:
            slot.clear()
            self._backend.copy(source.number, slot.number, count, source.checkpoint_at(count))
            slot.assign(tokens[:count])
            self.touch(source)
        else:
            self._go_back(slot, count)
        slot.key = key
        self.touch(slot)
        return count

    def drop_unusable(self, slot: Slot) -> None:
        """Go back to a checkpoint, or to the beginning, if a step has overwritten what the next token needs.

        That is a step that failed, or one with drafts that were rejected.
        """
        count = len(slot.tokens)
        if not slot.continues_at(count):
            self._go_back(slot, slot.usable(count))

    def _go_back(self, slot: Slot, count: int) -> None:
        """Let a slot continue after the first `count` tokens, which must be usable."""
        checkpoint = slot.checkpoint_at(count)
        if checkpoint is None:
            slot.truncate(count)
            return
        tokens, slot.tokens[:] = slot.tokens[:count], ()  # until the state is restored, none of it is valid
        self._backend.restore(slot.number, checkpoint)
        slot.tokens[:] = tokens
        slot.restored(count)

    def _branch(self, tokens: Sequence[int], count: int, key: Hashable) -> int | None:
        """Return how many of `tokens` a slot caches but cannot continue from, if that is well after `count`."""
        if not self._backend.num_checkpoints:
            return None
        shared = max(_common_prefix(slot, tokens, key) for slot in self._slots)
        return shared if shared >= count + MIN_SAVED_TOKENS else None

    def _spaced(self, ends: Iterable[int], count: int) -> list[int]:
        """Return those of the ends after `count` tokens at which a state can be saved, as far apart as checkpoints."""
        spaced: list[int] = []
        for end in ends if self._backend.num_checkpoints else ():
            if end >= (spaced[-1] if spaced else count) + MIN_SAVED_TOKENS:
                spaced.append(end)
        return spaced

    def save(self, slot: Slot) -> None:
        """Copy the state of a slot, so that a sequence can continue from here after others have changed it.

        The slot that was used least recently loses its first checkpoint if there are no more.
        """
        count = len(slot.tokens)
        total = self._backend.num_checkpoints
        if not total or count < max(slot.checkpoints, default=0) + MIN_SAVED_TOKENS:
            return
        number = self._unused_checkpoint()
        if number is None:
            number = _first_checkpoint(each for each in self._slots if each.checkpoints)
        self._backend.save(slot.number, number)
        slot.checkpoints[count] = number

    def _unused_checkpoint(self) -> int | None:
        taken = {number for each in self._slots for number in each.checkpoints.values()}
        return next((number for number in range(self._backend.num_checkpoints) if number not in taken), None)

    def save_before(self, slot: Slot, count: int) -> None:
        """Copy the state of a slot before a step of `count` tokens that may be dropped, if the nearest copy is far.

        The copy replaces the one before it of the same slot, or one of a slot that no sequence has.
        """
        done = len(slot.tokens)
        if slot.keeps(count) or done < max(slot.checkpoints, default=0) + MIN_SAVED_TOKENS:
            return
        number = slot.checkpoints.pop(slot.latest) if slot.latest in slot.checkpoints else self._unused_checkpoint()
        free = [each for each in self._slots if each.checkpoints and each.owner is None]
        if number is None and free:
            number = _first_checkpoint(free)
        if number is not None:
            self._backend.save(slot.number, number)
            slot.checkpoints[done] = number
            slot.latest = done

    def can_draft(self, slot: Slot) -> bool:
        """Return whether rejected drafts cost few tokens: a step with drafts has a checkpoint near."""
        return slot.can_lose(1) or self.can_drop(slot, MAX_DRAFTS)

    def can_drop(self, slot: Slot, count: int) -> bool:
        """Return whether `save_before` leaves a slot that can lose `count` tokens, and takes no copy from another."""
        return slot.can_lose(count) or slot.latest in slot.checkpoints or self._unused_checkpoint() is not None

    def grow_to_max(self) -> None:
        """Make all slots now, or as many as memory allows."""
        while len(self) < self.max_slots:
            self._grow()

    def _grow(self) -> None:
        if len(self) >= self.max_slots:
            return
        try:
            self._backend.grow(min(2 * len(self), self.max_slots))
        except OutOfMemory as error:
            if not error.budget:  # of the driver; a budget is meant to limit the slots
                logger.warning("%d of %d slots for sequences fit into memory: %s", len(self), self.max_slots, error)
            self.max_slots = len(self)
        count = min(self._backend.num_slots, self.max_slots)
        self._slots += [Slot(number, self._backend.cache_window) for number in range(len(self), count)]

    def _place(
        self, owner: SlotOwner, tokens: Sequence[int], is_idle: Callable[[SlotOwner], bool], key: Hashable
    ) -> Placement | None:
        source, count = self.lookup_prefix(tokens, key)
        if owner.slot is None and source.owner is None and count >= MIN_COPY_TOKENS:
            lost = len(source.tokens) - count  # tokens of a conversation that may be continued
            if lost < MIN_COPY_TOKENS or not self._has_empty():
                return Placement(source, source, count)
        slot = owner.slot or self._free() or self._idle(is_idle)
        if slot is None:
            return None
        there = _usable_prefix(slot, tokens, key)
        if count >= there + MIN_COPY_TOKENS:
            return Placement(slot, source, count)
        return Placement(slot, slot, there)

    def _has_empty(self) -> bool:
        free = self._free()
        return free is not None and not free.tokens

    def _free(self) -> Slot | None:
        """Return a free slot: an empty one, or the least recently used."""
        free = [slot for slot in self._slots if slot.owner is None]
        return min(free, key=lambda slot: (bool(slot.tokens), slot.last_used), default=None)

    def _idle(self, is_idle: Callable[[SlotOwner], bool]) -> Slot | None:
        idle = [slot for slot in self._slots if slot.owner is not None and is_idle(slot.owner)]
        return min(idle, key=lambda slot: slot.last_used, default=None)


def _first_checkpoint(slots: Iterable[Slot]) -> int:
    """Take the first checkpoint of the slot that was used least recently."""
    oldest = min(slots, key=lambda each: each.last_used)
    return oldest.checkpoints.pop(min(oldest.checkpoints))


def _usable_prefix(slot: Slot, tokens: Sequence[int], key: Hashable) -> int:
    return slot.usable(_common_prefix(slot, tokens, key))


def _common_prefix(slot: Slot, tokens: Sequence[int], key: Hashable) -> int:
    """Return how many first tokens are cached, but no part of an image whose rows see each other."""
    return whole_inputs(slot.tokens, common_prefix(slot.tokens, tokens)) if slot.key == key else 0


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the number of leading tokens that are equal. Slices are compared, which keeps the loop out of Python."""
    low, high = 0, min(len(left), len(right))
    if tuple(left[:high]) == tuple(right[:high]):
        return high
    while high - low > 1:  # the first `low` are equal, the first `high` are not
        middle = (low + high) // 2
        if tuple(left[low:middle]) == tuple(right[low:middle]):
            low = middle
        else:
            high = middle
    return low
