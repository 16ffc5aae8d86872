"""Uniforms: content-addressed parameter blocks and the block of live scalars.

A block is written once, when a schedule is first used, and never rewritten: dispatches with equal parameters share one.
Group 0 binds a block at a static offset beside the scalars; dynamic offsets cost more per dispatch on some drivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import wgpu

from ..wgsl.kernel import SYM_SLOTS
from ..wgsl.uniforms import SLOT_BYTES
from .gpu import Gpu
from .recording import Copy

BLOCKS_PER_BUFFER = 256
ROW_BYTES = 16  # of a live scalar
Array = np.ndarray[Any, Any]
_USAGE = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
_LATER_USAGE = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


class _Arena:
    """One uniform buffer of fixed-size blocks, its host copy, and the range that has to be written."""

    def __init__(self, gpu: Gpu) -> None:
        size = BLOCKS_PER_BUFFER * SLOT_BYTES
        self.buffer = gpu.create_buffer("parameters", size, _USAGE)
        self.host = bytearray(size)
        self.dirty: tuple[int, int] | None = None

    def put(self, slot: int, block: bytes) -> None:
        start = slot * SLOT_BYTES
        self.host[start : start + len(block)] = block
        low, high = self.dirty or (start, start)
        self.dirty = (min(low, start), max(high, start + SLOT_BYTES))


class Parameters:
    """All uniforms of a session."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._arenas: list[_Arena] = []
        self._free: list[int] = []
        self._slots: dict[bytes, int] = {}
        self._uses: dict[bytes, int] = {}
        self._groups: dict[int, Any] = {}
        self._scalars = np.zeros((SYM_SLOTS, 4), np.int32)
        self._later: Any = None  # the scalars of further steps in one submit
        self._scalar_buffer = gpu.create_buffer("scalars", self._scalars.nbytes, _USAGE)

    def group(self, block: bytes) -> Any:
        """The bind group of a block; counts as one use."""
        slot = self._slots.get(block)
        if slot is None:
            slot = self._take_slot()
            self._arenas[slot // BLOCKS_PER_BUFFER].put(slot % BLOCKS_PER_BUFFER, block)
            self._slots[block] = slot
        self._uses[block] = self._uses.get(block, 0) + 1
        return self._groups[slot]

    def release(self, blocks: Iterable[bytes]) -> None:
        """Give back one use of each block; a block nobody uses leaves its slot to another."""
        for block in blocks:
            self._uses[block] -= 1
            if not self._uses[block]:
                del self._uses[block]
                self._free.append(self._slots.pop(block))

    def flush(self) -> None:
        for arena in self._arenas:
            if arena.dirty is not None:
                low, high = arena.dirty
                self._gpu.write(arena.buffer, low, memoryview(arena.host)[low:high])
                self._gpu.counters.uniform_bytes += high - low
                arena.dirty = None

    def write_scalars(self, steps: Sequence[Mapping[int, int]]) -> list[Copy]:
        """Write the live scalars of the first step; for each further one, the copy that puts its own in their place.

        Only what changed is written, in one piece.
        """
        written = self._changed_rows(steps[0])
        if written is not None:
            low, data = written
            self._write(self._scalar_buffer, low * ROW_BYTES, data)
        if len(steps) == 1:
            return []
        used = max(steps[0], default=0) + 1
        rows = np.zeros((len(steps) - 1, used, 4), np.int32)
        for number, values in enumerate(steps[1:]):
            rows[number, list(values), 0] = list(values.values())
        self._scalars[:used] = rows[-1]
        if self._later is None or self._later.size < rows.nbytes:
            self._later = self._gpu.create_buffer("later scalars", rows.nbytes, _LATER_USAGE)
        self._write(self._later, 0, rows)
        size = used * ROW_BYTES
        return [Copy(self._later, number * size, self._scalar_buffer, 0, size) for number in range(len(rows))]

    def _changed_rows(self, values: Mapping[int, int]) -> tuple[int, Array] | None:
        changed = [slot for slot, value in values.items() if self._scalars[slot, 0] != value]
        if not changed:
            return None
        for slot in changed:
            self._scalars[slot, 0] = values[slot]
        low, high = min(changed), max(changed) + 1
        return low, self._scalars[low:high]

    def _write(self, buffer: Any, offset: int, data: Array) -> None:
        self._gpu.write(buffer, offset, data)
        self._gpu.counters.uniform_bytes += data.nbytes

    def close(self) -> None:
        self._groups.clear()
        for arena in self._arenas:
            arena.buffer.destroy()
        self._scalar_buffer.destroy()
        if self._later is not None:
            self._later.destroy()
        self._arenas.clear()

    def _take_slot(self) -> int:
        if not self._free:
            first = len(self._arenas) * BLOCKS_PER_BUFFER
            self._arenas.append(_Arena(self._gpu))
            self._free = list(range(first + BLOCKS_PER_BUFFER - 1, first - 1, -1))
        slot = self._free.pop()
        if slot not in self._groups:
            arena = self._arenas[slot // BLOCKS_PER_BUFFER]
            entries = [
                (arena.buffer, slot % BLOCKS_PER_BUFFER * SLOT_BYTES, SLOT_BYTES),
                (self._scalar_buffer, 0, self._scalars.nbytes),
            ]
            self._groups[slot] = self._gpu.create_bind_group(self._gpu.uniform_layout, entries)
        return slot
