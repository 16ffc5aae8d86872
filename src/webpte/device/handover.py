"""What is copied between two executions that share a submit: results fed back, and the inputs of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import wgpu

from ..plan import padded
from .gpu import Gpu
from .recording import Copy

Array = np.ndarray[Any, Any]
_USAGE = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


class Feed(NamedTuple):
    """A result that becomes an input: tensors, or their buffers."""

    source: Any
    target: Any
    nbytes: int


class Handover:
    """Copies that lead from one execution to the next, and the memory they need. All tensors begin at offset 0."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._inputs: Any = None  # of all executions but the first
        self._aside: Any = None

    def feeds(self, feeds: Sequence[Feed]) -> list[Copy]:
        """All results become inputs at once, whatever shares a buffer with what."""
        # Where both share a buffer the result is in its place already, and WebGPU has no copy inside one buffer.
        moved = [feed for feed in feeds if feed.source is not feed.target]
        targets = {id(feed.target) for feed in moved}
        if not any(id(feed.source) in targets for feed in moved):
            return [Copy(feed.source, 0, feed.target, 0, padded(feed.nbytes)) for feed in moved]
        ends = np.cumsum([padded(feed.nbytes) for feed in moved]).tolist()
        self._aside = self._large_enough(self._aside, "fed results", ends[-1])
        away, back = [], []
        for feed, start in zip(moved, [0, *ends], strict=False):
            away.append(Copy(feed.source, 0, self._aside, start, padded(feed.nbytes)))
            back.append(Copy(self._aside, start, feed.target, 0, padded(feed.nbytes)))
        return away + back

    def inputs(self, steps: Sequence[Sequence[tuple[Any, Array]]]) -> list[list[Copy]]:
        """Send (buffer, data) of further executions to the device; the copies that put each one's in place."""
        ends = np.cumsum([0, *(padded(array.nbytes) for step in steps for _, array in step)]).tolist()
        if not ends[-1]:
            return [[] for _ in steps]
        self._inputs = self._large_enough(self._inputs, "later inputs", ends[-1])
        data = bytearray(ends[-1])
        copies: list[list[Copy]] = []
        starts = iter(ends)
        for step in steps:
            copies.append([])
            for buffer, array in step:
                start = next(starts)
                data[start : start + array.nbytes] = array.tobytes()
                copies[-1].append(Copy(self._inputs, start, buffer, 0, padded(array.nbytes)))
                self._gpu.counters.input_bytes += array.nbytes
        self._gpu.write(self._inputs, 0, data)
        return copies

    def close(self) -> None:
        for buffer in (self._inputs, self._aside):
            if buffer is not None:
                buffer.destroy()

    def _large_enough(self, buffer: Any, label: str, nbytes: int) -> Any:
        if buffer is not None and buffer.size >= nbytes:
            return buffer
        return self._gpu.create_buffer(label, nbytes, _USAGE)
