"""Device memory: how much this process has allocated, and how much it may allocate.

WebGPU does not report the size of a device's memory. A software device uses the free memory of the machine. An
integrated GPU, or a device of unknown kind, shares the machine's memory, or what a control group may have of it. The
memory of a discrete GPU is unknown; the `memory` argument of `load` sets a limit there.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from ..host_memory import free_memory, physical_memory
from .process_events import after_fork_in_child

RESERVED_BYTES = 256 << 20  # for the driver's compiler, for threads and for the rest of the process


class MemoryLimit(NamedTuple):
    """The bytes that all buffers of this process may take together."""

    nbytes: int | None  # None if unknown
    source: str  # what sets the limit, for messages


_process_limit: int | None = None


def limit_allocations(nbytes: int) -> int:
    """Limit the buffers of this process, at least to what they take now. Return what they take.

    Programs that are loaded with a limit of their own keep it."""
    global _process_limit
    allocated = allocated_bytes()
    _process_limit = max(nbytes, allocated)
    return allocated


def memory_limit(adapter_type: str, allocated: int) -> MemoryLimit:
    """Return the limit for a process that has allocated this many bytes on an adapter of this type."""
    if _process_limit is not None:
        return MemoryLimit(_process_limit, "the limit of this process")
    if adapter_type == "CPU":
        free = free_memory(allocated)
        if free is not None:
            return MemoryLimit(max(0, free[0] - RESERVED_BYTES), free[1])
    if adapter_type == "DiscreteGPU":
        return MemoryLimit(None, "the memory of a discrete GPU, which WebGPU does not report")
    return MemoryLimit(*(physical_memory() or (None, "the memory of this machine")))


_sizes: dict[weakref.ref[Any], int] = {}
_untrack = _sizes.pop  # a built-in: a KeyboardInterrupt raised inside a Python callback would be lost


def track_buffer(buffer: Any, nbytes: int) -> None:
    """Count a buffer as allocated while the object lives. Code that destroys a buffer also drops its references."""
    _sizes[weakref.ref(buffer, _untrack)] = nbytes


def allocated_bytes() -> int:
    """Return the bytes of all live buffers of this process."""
    return sum(list(_sizes.values()))  # a copy first: other threads create and drop buffers meanwhile


@after_fork_in_child
def _forget() -> None:
    """Count from zero: the buffers belong to the parent. Their callbacks still use the old dictionary."""
    global _sizes, _untrack
    _sizes = {}
    _untrack = _sizes.pop
