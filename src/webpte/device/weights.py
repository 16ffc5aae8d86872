"""Constants on the device, uploaded once from the mapped file into their buffers."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import wgpu

from ..plan import Buffer, BufferFill
from ..progress import OnProgress, Progress
from .gpu import Gpu
from .memory import MemoryLimit, allocated_bytes, memory_limit
from .process_events import defer_interrupts, keep_alive_in_child

_WORDS: dict[str, type] = {"bool": np.uint32, "f16w": np.float32}
UPLOAD_CHUNK_BYTES = 4 << 20  # the queue never holds more than this beside the target buffers
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC


def constant_key(plan: Buffer) -> object:
    """Return a key that is equal for constants that share a buffer."""
    assert plan.fill is not None
    return (plan.fill.constant.identity, plan.fill.dtype)


class WeightBuffers:
    """The buffers of a program's read-only constants. All its methods and sessions share them.

    `memory` limits the bytes of all buffers of this process. By default the limit is that of the device.
    """

    def __init__(self, gpu: Gpu, memory: int | None = None) -> None:
        self._gpu = gpu
        self._memory = memory
        self._buffers: dict[object, Any] = {}
        keep_alive_in_child(self)

    @property
    def present(self) -> Container[object]:
        """Return the keys of the constants that are on the device."""
        return self._buffers

    def memory_limit(self) -> MemoryLimit:
        """Return the limit for all buffers of this process."""
        if self._memory is not None:
            return MemoryLimit(self._memory, f"memory={self._memory}")
        return memory_limit(self._gpu.adapter_type, allocated_bytes())

    def upload(self, plans: Sequence[Buffer], progress: OnProgress) -> None:
        """Create and fill the buffers of all constants that are not on the device yet."""
        missing = {constant_key(plan): plan for plan in plans if constant_key(plan) not in self._buffers}
        total, done, stream = sum(plan.nbytes for plan in missing.values()), 0, UploadStream(self._gpu)
        for key, plan in missing.items():
            progress(Progress("upload", done, total, "bytes"))
            assert plan.fill is not None
            buffer = self._gpu.create_buffer(plan.fill.constant.name[:24], plan.nbytes, USAGE)
            fill_buffer(stream, buffer, plan.fill)
            self._buffers[key] = buffer  # only now: an interrupted load must be repeated
            done += plan.nbytes
        stream.flush()
        progress(Progress("upload", total, total, "bytes"))

    def buffer(self, plan: Buffer) -> Any:
        """Return the GPU buffer of an uploaded constant."""
        return self._buffers[constant_key(plan)]

    @defer_interrupts
    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.destroy()
        self._buffers.clear()


class UploadStream:
    """Writes to the device with at most UPLOAD_CHUNK_BYTES in flight. Small writes share one wait."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._pending = 0

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        if self._pending + len(data) > UPLOAD_CHUNK_BYTES:
            self.flush()
        self._gpu.write(buffer, offset, data)
        self._gpu.counters.constant_bytes += len(data)
        self._pending += len(data)

    def flush(self) -> None:
        if self._pending:
            self._gpu.wait()
            self._pending = 0


def fill_buffer(stream: UploadStream, buffer: Any, fill: BufferFill, skip_zeros: bool = False) -> None:
    """Write a constant's bytes. With `skip_zeros`, all-zero data is not written: WebGPU clears new buffers."""
    if skip_zeros and not any(np.frombuffer(chunk, np.uint8).any() for _, chunk in device_pieces(fill)):
        return
    for offset, chunk in device_pieces(fill):
        stream.write(buffer, offset, chunk)


def device_pieces(fill: BufferFill) -> Iterator[tuple[int, Any]]:
    """Yield the offset and bytes of each piece of a constant, converted if the file stores another width."""
    stored = np.dtype(fill.constant.dtype.numpy)
    device = storage_dtype(fill.dtype)
    offset = 0
    for piece in fill.constant.pieces(UPLOAD_CHUNK_BYTES // max(stored.itemsize, device.itemsize) * stored.itemsize):
        data = piece if stored == device else np.frombuffer(piece, stored).astype(device).tobytes()
        yield offset, data if len(data) % 4 == 0 else bytes(data) + bytes(-len(data) % 4)
        offset += len(data)


def storage_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a device tensor's elements. Bools take a word; so do halves without shader-f16."""
    if dtype.short in _WORDS:
        return np.dtype(_WORDS[dtype.short])
    stored: np.dtype[Any] = np.dtype(dtype.numpy)
    return stored
