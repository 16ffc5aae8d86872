"""Constants on the device: from the mapped file straight into their buffers, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import wgpu

from ..plan import Buffer, Fill
from ..progress import OnProgress, Progress
from .gpu import Gpu

CHUNK = 4 << 20  # flushed one by one: the queue never holds more than this beside the target buffer
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC


class Weights:
    """The read-only constants of a program. All its methods and sessions share them."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._buffers: dict[object, Any] = {}

    def upload(self, plans: Sequence[Buffer], progress: OnProgress) -> None:
        """Fill the buffers of all constants that are not on the device yet."""
        missing = {self._key(plan): plan for plan in plans if self._key(plan) not in self._buffers}
        total, done = sum(plan.nbytes for plan in missing.values()), 0
        for key, plan in missing.items():
            progress(Progress("upload", done, total, "bytes"))
            assert plan.fill is not None
            buffer = self._gpu.create_buffer(plan.fill.constant.name[:24], plan.nbytes, USAGE)
            self._buffers[key] = buffer  # before it is filled: an interrupted load still frees it
            fill_buffer(self._gpu, buffer, plan.fill)
            done += plan.nbytes
        progress(Progress("upload", total, total, "bytes"))

    def buffer(self, plan: Buffer) -> Any:
        """The GPU buffer of an uploaded constant."""
        return self._buffers[self._key(plan)]

    @staticmethod
    def _key(plan: Buffer) -> object:
        assert plan.fill is not None
        return (plan.fill.constant.identity, plan.fill.dtype)

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.destroy()
        self._buffers.clear()


def fill_buffer(gpu: Gpu, buffer: Any, fill: Fill, skip_zeros: bool = False) -> None:
    """Write a constant's bytes. `skip_zeros` leaves all-zero data to WebGPU, which clears new buffers."""
    if skip_zeros and not any(np.frombuffer(chunk, np.uint8).any() for _, chunk in _chunks(fill)):
        return
    for offset, chunk in _chunks(fill):
        gpu.write(buffer, offset, chunk)
        gpu.counters.constant_bytes += len(chunk)
        if len(chunk) == CHUNK:
            gpu.wait()
    gpu.wait()


def _chunks(fill: Fill) -> Iterator[tuple[int, Any]]:
    """The device bytes of a constant in pieces, converted where the file stores a wider or narrower type."""
    stored = np.dtype(fill.constant.dtype.numpy)
    wanted = storage_dtype(fill.dtype)
    offset = 0
    for piece in fill.constant.pieces(CHUNK // max(stored.itemsize, wanted.itemsize) * stored.itemsize):
        data = piece if stored == wanted else np.frombuffer(piece, stored).astype(wanted).tobytes()
        yield offset, data if len(data) % 4 == 0 else bytes(data) + bytes(-len(data) % 4)
        offset += len(data)


def storage_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a device tensor's elements: bools take a word."""
    return np.dtype(np.uint32) if dtype.short == "bool" else np.dtype(dtype.numpy)
