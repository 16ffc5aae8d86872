"""Uniforms: content-addressed parameter blocks and the block of live scalars.

A block is written once, when a schedule is first used, and never rewritten: dispatches with equal parameters share one.
Group 0 binds a block at a static offset beside the scalars; dynamic offsets cost more per dispatch on some drivers.

The host's record of what is on the device is cleared before a write and set again after it. So a call that fails or is
interrupted in between makes the next call write a few bytes again, and never changes a result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import wgpu

from ..wgsl.kernel import SYM_SLOTS
from ..wgsl.uniforms import SLOT_BYTES
from .gpu import Gpu
from .recording import BufferCopy

BLOCKS_PER_BUFFER = 256
SCALAR_BYTES = 16  # a live scalar and its padding
_ROW = "i12x"
_USAGE = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
_LATER_USAGE = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def parameter_bytes(blocks: int) -> int:
    """Return the memory of this number of distinct blocks and of the scalars."""
    return -(-blocks // BLOCKS_PER_BUFFER) * BLOCKS_PER_BUFFER * SLOT_BYTES + SYM_SLOTS * SCALAR_BYTES


class Parameters:
    """All uniforms of a session."""

    def __init__(self, gpu: Gpu) -> None:
        self.written = 0  # bytes since it was created
        self._gpu = gpu
        self._buffers: list[Any] = []  # of blocks, BLOCKS_PER_BUFFER each
        self._slots: dict[bytes, int] = {}  # block on the device -> its slot
        self._groups: dict[int, Any] = {}  # slot -> its bind group
        self._scalars: dict[int, int] | None = {}  # the device's values by slot; None: unknown
        self._submitting: dict[int, int] = {}  # its values after the next submit
        self._later: Any = None  # the scalars of further steps in one submit
        self._scalar_buffer = gpu.create_buffer("scalars", SYM_SLOTS * SCALAR_BYTES, _USAGE)

    # -- parameter blocks ------------------------------------------------------------------------------------------

    def groups(self, blocks: Sequence[bytes], used: Iterable[bytes] = ()) -> list[Any]:
        """Return the bind group of each block. Slots of blocks outside `blocks` and `used` may be reused."""
        missing = [block for block in dict.fromkeys(blocks) if block not in self._slots]
        if missing:
            self._place(missing, {*blocks, *used})
        return [self._group(self._slots[block]) for block in blocks]

    def _place(self, missing: Sequence[bytes], needed: set[bytes]) -> None:
        """Write blocks into free slots, then record their slots."""
        if len(self._free()) < len(missing):
            self._slots = {block: slot for block, slot in self._slots.items() if block in needed}
        while len(self._free()) < len(missing):
            size = BLOCKS_PER_BUFFER * SLOT_BYTES
            self._buffers.append(self._gpu.create_buffer("parameters", size, _USAGE))
        placed = list(zip(self._free(), missing, strict=False))
        for run in _adjacent(placed):
            number, position = divmod(run[0][0], BLOCKS_PER_BUFFER)
            data = b"".join(block.ljust(SLOT_BYTES, b"\0") for _, block in run)
            self._write(self._buffers[number], position * SLOT_BYTES, data)
        self._slots = self._slots | {block: slot for slot, block in placed}

    def _free(self) -> list[int]:
        taken = set(self._slots.values())
        return [slot for slot in range(len(self._buffers) * BLOCKS_PER_BUFFER) if slot not in taken]

    def _group(self, slot: int) -> Any:
        group = self._groups.get(slot)
        if group is None:
            number, position = divmod(slot, BLOCKS_PER_BUFFER)
            entries = [
                (self._buffers[number], position * SLOT_BYTES, SLOT_BYTES),
                (self._scalar_buffer, 0, SYM_SLOTS * SCALAR_BYTES),
            ]
            group = self._groups[slot] = self._gpu.create_bind_group(self._gpu.uniform_layout, entries)
        return group

    # -- live scalars ----------------------------------------------------------------------------------------------

    def write_scalars(self, steps: Sequence[Mapping[int, int]]) -> list[BufferCopy]:
        """Write the live scalars of the first step, and return for each further step the copy that replaces them.

        Only changed scalars are written, in one range. Call `submitted` after the submit.
        """
        previous, self._scalars = self._scalars or {}, None
        values = steps[0]
        changed = [slot for slot, value in values.items() if previous.get(slot) != value]
        self._submitting = {**previous, **values}
        if changed:
            low, high = min(changed), max(changed) + 1
            self._write(self._scalar_buffer, low * SCALAR_BYTES, _rows([self._submitting], low, high))
        return self._write_later(steps[1:]) if len(steps) > 1 else []

    def _write_later(self, steps: Sequence[Mapping[int, int]]) -> list[BufferCopy]:
        used = max((slot for values in steps for slot in values), default=0) + 1
        rows = _rows(steps, 0, used)
        if self._later is None or self._later.size < len(rows):
            self._later = self._gpu.create_buffer("later scalars", len(rows), _LATER_USAGE)
        self._write(self._later, 0, rows)
        beyond = {slot: value for slot, value in self._submitting.items() if slot >= used}
        self._submitting = {**beyond, **steps[-1]}
        size = used * SCALAR_BYTES
        return [BufferCopy(self._later, number * size, self._scalar_buffer, 0, size) for number in range(len(steps))]

    def submitted(self) -> None:
        """Record that the copies of `write_scalars` were submitted."""
        self._scalars = self._submitting

    def _write(self, buffer: Any, offset: int, data: bytes) -> None:
        self._gpu.write(buffer, offset, data)
        self._gpu.counters.uniform_bytes += len(data)
        self.written += len(data)

    def close(self) -> None:
        self._groups.clear()
        for buffer in self._buffers:
            buffer.destroy()
        self._scalar_buffer.destroy()
        if self._later is not None:
            self._later.destroy()
        self._buffers.clear()


def _adjacent(placed: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield groups of slots, with their blocks, that are adjacent in one buffer."""
    run: list[tuple[int, bytes]] = []
    for slot, block in placed:
        if run and (slot != run[-1][0] + 1 or slot % BLOCKS_PER_BUFFER == 0):
            yield run
            run = []
        run.append((slot, block))
    yield run


def _rows(steps: Sequence[Mapping[int, int]], low: int, high: int) -> bytes:
    """Return the slots from `low` up to `high` of each step, in the device's layout."""
    numbers = [values.get(slot, 0) for values in steps for slot in range(low, high)]
    return struct.pack("<" + _ROW * len(numbers), *numbers)
