"""Device memory: how much this process has allocated, and how much it may allocate.

WebGPU does not report the size of a device's memory. A software device uses the free memory of the machine. An
integrated GPU, or a device of unknown kind, shares the machine's memory. The memory of a discrete GPU is unknown; the
`memory` argument of `load` sets a limit there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from .process_events import after_fork_in_child

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

RESERVED_BYTES = 256 << 20  # for the driver's compiler, for threads and for the rest of the process
_UNLIMITED = 1 << 60  # version 1 of control groups reports a little less than 2**63 for "no limit"


class MemoryLimit(NamedTuple):
    """The bytes that all buffers of this process may take together."""

    nbytes: int | None  # None if unknown
    source: str  # what sets the limit, for messages


def memory_limit(adapter_type: str, allocated: int) -> MemoryLimit:
    """Return the limit for a process that has allocated this many bytes on an adapter of this type."""
    if adapter_type == "CPU":
        free = min(_free(allocated), default=None)
        if free is not None:
            return MemoryLimit(max(0, free[0] - RESERVED_BYTES), free[1])
    if adapter_type == "DiscreteGPU":
        return MemoryLimit(None, "the memory of a discrete GPU, which WebGPU does not report")
    return MemoryLimit(_physical(), "the memory of this machine")


def _free(allocated: int) -> Iterator[tuple[int, str]]:
    """Yield the bytes that each limit of the process leaves to buffers, existing ones included, and its name."""
    status = _fields("/proc/self/status")
    # Memory is taken when it is first written: the resident part of the buffers no longer counts as free.
    resident = min(allocated, status.get("RssAnon", 0) + status.get("RssShmem", 0))
    meminfo = _fields("/proc/meminfo")
    if "MemAvailable" in meminfo:
        yield meminfo["MemAvailable"] + resident, "the free memory of this machine"
    for remaining in _remaining_in_groups():
        yield remaining + resident, "the free memory under the control group's limit"
    if resource is not None and "VmSize" in status:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - status["VmSize"] + allocated, "the remaining address space, RLIMIT_AS"


def _remaining_in_groups() -> Iterator[int]:
    """Yield limit minus use for every control group of this process. Droppable pages of files count as free."""
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.rstrip().split(":", 2)
        if controllers == "":
            yield from _remaining("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _remaining("/sys/fs/cgroup/memory", path, *names)


def _remaining(root: str, path: str, limit: str, used: str, droppable: str) -> Iterator[int]:
    while True:
        folder = root + path
        maximum, used_bytes = (_number(f"{folder}/{name}") for name in (limit, used))
        if maximum is not None and used_bytes is not None and maximum < _UNLIMITED:
            files = [int(line.split()[1]) for line in _lines(f"{folder}/memory.stat") if line.split()[0] == droppable]
            yield maximum - used_bytes + sum(files)
        if path in ("", "/"):
            return
        path = os.path.dirname(path)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _fields(path: str) -> dict[str, int]:
    """Return the sizes in a file of `Name: 12 kB` lines, in bytes."""
    pairs = (line.partition(":")[::2] for line in _lines(path))
    return {name: int(rest.split()[0]) * 1024 for name, rest in pairs if rest.rstrip().endswith("kB")}


def _number(path: str) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None  # version 2 writes "max" for no limit


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.readlines()
    except OSError:
        return []


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
