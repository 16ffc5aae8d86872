"""Constants on the device: from the mapped file straight into their buffers, once."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import wgpu

from ..plan import Buffer, Fill
from ..progress import OnProgress, Progress
from .forks import keep_in_children
from .gpu import Gpu
from .interrupts import uninterrupted
from .ledger import held
from .machine_memory import Offer, offered

_WORDS: dict[str, type] = {"bool": np.uint32, "f16w": np.float32}
CHUNK = 4 << 20  # the queue never holds more than this beside the target buffers
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC


def constant_key(plan: Buffer) -> object:
    """Equal for constants that share a buffer."""
    assert plan.fill is not None
    return (plan.fill.constant.identity, plan.fill.dtype)


class Weights:
    """The read-only constants of a program. All its methods and sessions share them.

    `memory` is the most that all buffers of this process may take; what the device has to give unless given.
    """

    def __init__(self, gpu: Gpu, memory: int | None = None) -> None:
        self._gpu = gpu
        self._memory = memory
        self._buffers: dict[object, Any] = {}
        keep_in_children(self)

    @property
    def present(self) -> Container[object]:
        """Keys of the constants that are on the device."""
        return self._buffers

    def offer(self) -> Offer:
        """How much the program's methods may take, together with all others of this process."""
        if self._memory is not None:
            return Offer(self._memory, f"memory={self._memory}")
        return offered(self._gpu.adapter_type, held())

    def upload(self, plans: Sequence[Buffer], progress: OnProgress) -> None:
        """Fill the buffers of all constants that are not on the device yet."""
        missing = {constant_key(plan): plan for plan in plans if constant_key(plan) not in self._buffers}
        total, done, stream = sum(plan.nbytes for plan in missing.values()), 0, Stream(self._gpu)
        for key, plan in missing.items():
            progress(Progress("upload", done, total, "bytes"))
            assert plan.fill is not None
            buffer = self._gpu.create_buffer(plan.fill.constant.name[:24], plan.nbytes, USAGE)
            fill_buffer(stream, buffer, plan.fill)
            self._buffers[key] = buffer  # only now: after an interrupted load the next one fills it again
            done += plan.nbytes
        stream.flush()
        progress(Progress("upload", total, total, "bytes"))

    def buffer(self, plan: Buffer) -> Any:
        """The GPU buffer of an uploaded constant."""
        return self._buffers[constant_key(plan)]

    @uninterrupted
    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.destroy()
        self._buffers.clear()


class Stream:
    """Writes that wait for the device whenever so much is under way: small ones share a wait."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._pending = 0

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        if self._pending + len(data) > CHUNK:
            self.flush()
        self._gpu.write(buffer, offset, data)
        self._gpu.counters.constant_bytes += len(data)
        self._pending += len(data)

    def flush(self) -> None:
        if self._pending:
            self._gpu.wait()
            self._pending = 0


def fill_buffer(stream: Stream, buffer: Any, fill: Fill, skip_zeros: bool = False) -> None:
    """Write a constant's bytes. `skip_zeros` leaves all-zero data to WebGPU, which clears new buffers."""
    if skip_zeros and not any(np.frombuffer(chunk, np.uint8).any() for _, chunk in device_pieces(fill)):
        return
    for offset, chunk in device_pieces(fill):
        stream.write(buffer, offset, chunk)


def device_pieces(fill: Fill) -> Iterator[tuple[int, Any]]:
    """The device bytes of a constant in pieces, converted where the file stores a wider or narrower type."""
    stored = np.dtype(fill.constant.dtype.numpy)
    wanted = storage_dtype(fill.dtype)
    offset = 0
    for piece in fill.constant.pieces(CHUNK // max(stored.itemsize, wanted.itemsize) * stored.itemsize):
        data = piece if stored == wanted else np.frombuffer(piece, stored).astype(wanted).tobytes()
        yield offset, data if len(data) % 4 == 0 else bytes(data) + bytes(-len(data) % 4)
        offset += len(data)


def storage_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a device tensor's elements: bools take a word, and so do halves where there is no f16."""
    if dtype.short in _WORDS:
        return np.dtype(_WORDS[dtype.short])
    stored: np.dtype[Any] = np.dtype(dtype.numpy)
    return stored
