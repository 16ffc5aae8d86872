"""Canaries: every buffer of a method is larger than its tensors, inside its bindings, and what lies after is watched.

WebGPU drops a write outside a binding, or moves it to the last element inside, so that it never reaches other memory: a
stray write lands after its own tensor, where the canary is, or nowhere. What no one wrote reads as a NaN, in f32 and
in f16, or as a huge integer, so that a stray read spoils the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import wgpu

from tests.support.harness.devices import session_of
from webpte.graph import TensorSpec
from webpte.lowering import stored_bytes
from webpte.plan import padded
from webpte.plan.memory import plan_memory
from webpte.runtime import Method

GUARD = 256  # bytes
CANARY = 0x7FDAFE5A  # each half of it is a NaN too


@contextlib.contextmanager
def larger_buffers() -> Iterator[None]:
    """Plan with room for a canary in every buffer."""

    def assigned(*args: Any) -> Any:
        memory = plan_memory(*args)
        return replace(memory, buffers=tuple(replace(b, nbytes=b.nbytes + GUARD) for b in memory.buffers))

    with mock.patch("webpte.plan.planner.plan_memory", assigned):
        yield


class Canaries:
    """Those of a method that was planned with larger buffers."""

    def __init__(self, method: Method) -> None:
        self._plan = method.plan
        session = session_of(method) if method.plan.flow.segments else None
        self._gpu = session.gpu if session is not None else None
        self._buffers = list(session._buffers) if session is not None else []

    def set_out(self) -> None:
        """Put canaries after all tensors, and in place of whatever the last run computed."""
        assert self._gpu is not None
        for spec, buffer in zip(self._plan.buffers, self._buffers, strict=True):
            first = 0 if spec.kind == "activation" else spec.nbytes - GUARD
            self._gpu.write(buffer, first, np.full((spec.nbytes - first) // 4, CANARY, np.uint32))

    def check(self, outputs: Sequence[Any], where: str) -> None:
        """Check that nothing was written after a tensor or after the live elements of an output."""
        first = [spec.nbytes - GUARD for spec in self._plan.buffers]
        for value_id, array in zip(self._plan.graph.outputs, outputs, strict=True):
            spec = self._plan.graph.values[value_id]
            if isinstance(spec, TensorSpec) and value_id in self._plan.buffer_of:
                number = self._plan.buffer_of[value_id]
                if self._plan.buffers[number].tensors == (value_id,):  # else it may belong to another tensor
                    first[number] = min(first[number], padded(stored_bytes(spec.dtype, np.shape(array))))
        for number, words in enumerate(self._read(first)):
            touched = np.flatnonzero(words != CANARY)
            if touched.size:
                tensors = self._plan.buffers[number].tensors
                at = first[number] + 4 * int(touched[0])
                raise AssertionError(f"{where}: {touched.size} words behind {tensors} were written, from byte {at} on")

    def _read(self, first: Sequence[int]) -> list[Any]:
        """Return the words of each buffer from a byte on, all in one submit."""
        if self._gpu is None:
            return []
        sizes = [spec.nbytes - start for spec, start in zip(self._plan.buffers, first, strict=True)]
        device = self._gpu.device
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        staging = device.create_buffer(size=sum(sizes), usage=usage)
        encoder = device.create_command_encoder()
        offsets = np.cumsum([0, *sizes]).tolist()
        for buffer, start, size, offset in zip(self._buffers, first, sizes, offsets, strict=False):
            encoder.copy_buffer_to_buffer(buffer, start, staging, offset, size)
        device.queue.submit([encoder.finish()])
        words = np.frombuffer(self._gpu.read(staging, sum(sizes)), np.uint32)
        return np.split(words, [offset // 4 for offset in offsets[1:-1]])
