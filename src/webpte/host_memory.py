"""The memory of the machine: all of it, and what this process may still take of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_UNLIMITED = 1 << 60  # version 1 of control groups reports a little less than 2**63 for "no limit"
GROUPS, PROCESS_GROUPS = "/sys/fs/cgroup", "/proc/self/cgroup"


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


class _Names(NamedTuple):
    """The files of a control group, in one version of control groups."""

    limits: tuple[str, ...]
    used: str
    droppable: str  # a line of memory.stat: pages of files that the kernel drops before it refuses memory


_V1 = _Names(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
# Beyond memory.high, a process is slowed down until it hardly runs.
_V2 = _Names(("memory.max", "memory.high"), "memory.current", "inactive_file")


def _remaining_in_groups() -> Iterator[int]:
    """Yield limit minus use for every control group of this process. Droppable pages of files count as free."""
    for folder, names in _groups():
        used = _number(f"{folder}/{names.used}")
        if used is None:
            continue
        for limit in _group_limits(folder, names):
            statistics = map(str.split, _lines(f"{folder}/memory.stat"))
            yield limit - used + sum(int(line[1]) for line in statistics if line[0] == names.droppable)


def _group_limits(folder: str, names: _Names) -> list[int]:
    numbers = [_number(f"{folder}/{name}") for name in names.limits]
    return [number for number in numbers if number is not None and number < _UNLIMITED]


def _groups() -> Iterator[tuple[str, _Names]]:
    """Yield the folders of the control groups of this process, each with its parents.

    In a container, a path may be that of the host, which is not there. The root is then the container's group.
    """
    for line in _lines(PROCESS_GROUPS):
        _, controllers, path = line.rstrip().split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            top, names = (GROUPS, _V2) if controllers == "" else (f"{GROUPS}/memory", _V1)
            while path not in ("", "/"):
                yield top + path, names
                path = os.path.dirname(path)
            yield top, names


def physical_memory() -> tuple[int, str] | None:
    """Return the bytes of memory that this process may have at most, and the name of the limit: the machine's memory,
    or the limit of a control group. None means that the system does not report it."""
    limits = [(limit, "the control group's limit") for group in _groups() for limit in _group_limits(*group)]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append((os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "the memory of this machine"))
    return min(limits, default=None)


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
