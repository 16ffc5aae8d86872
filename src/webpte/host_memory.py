"""The memory of the machine: all of it, and what this process may still take of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_UNLIMITED = 1 << 60  # version 1 of control groups reports a little less than 2**63 for "no limit"


def free_memory(allocated: int = 0) -> tuple[int, str] | None:
    """Return the bytes that this process may still take, its `allocated` ones included, and the name of the limit.

    None means that the system does not report it.
    """
    return min(_limits(allocated), default=None)


def _limits(allocated: int) -> Iterator[tuple[int, str]]:
    """Yield the bytes that each limit of the process leaves, allocated ones included, and its name."""
    status = _fields("/proc/self/status")
    # Memory is taken when it is first written: the resident part of what is allocated no longer counts as free.
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


def physical_memory() -> int | None:
    """Return the bytes of the machine's memory, or None if the system does not report them."""
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
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []
