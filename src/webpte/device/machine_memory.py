"""How much memory a device has to give. WebGPU does not tell, so the machine is asked where that makes sense.

A software device computes in the memory that is free now. An integrated GPU, or one nobody knows the kind of, shares
the machine's memory. Of a discrete GPU nothing is known; there a limit has to be given to `load`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

RESERVE = 256 << 20  # for the driver's compiler, threads and what else the process will want
_UNLIMITED = 1 << 60  # what version 1 of control groups says is a little less than 2**63


class Offer(NamedTuple):
    """Bytes that all buffers of this process may take together; None if nobody knows."""

    nbytes: int | None
    source: str


def offered(adapter_type: str, held: int) -> Offer:
    """What a kind of adapter has for a process that holds so many bytes already."""
    if adapter_type == "CPU":
        free = min(_free(held), default=None)
        if free is not None:
            return Offer(max(0, free[0] - RESERVE), free[1])
    if adapter_type == "DiscreteGPU":
        return Offer(None, "the memory of a discrete GPU, which WebGPU does not tell")
    return Offer(_physical(), "the memory of this machine")


def _free(held: int) -> Iterator[tuple[int, str]]:
    """What each of the limits a process lives under leaves to buffers, those it has included."""
    status = _fields("/proc/self/status")
    # Memory is taken when it is first written: what of the buffers is resident is no longer free, the rest still is.
    resident = min(held, status.get("RssAnon", 0) + status.get("RssShmem", 0))
    meminfo = _fields("/proc/meminfo")
    if "MemAvailable" in meminfo:
        yield meminfo["MemAvailable"] + resident, "what is free of this machine's memory"
    for left in _left_in_groups():
        yield left + resident, "what is free under the control group's limit"
    if resource is not None and "VmSize" in status:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - status["VmSize"] + held, "what is left of the address space, RLIMIT_AS"


def _left_in_groups() -> Iterator[int]:
    """Limit less use, for every control group this process is in. Pages of files that can be dropped do not count."""
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.rstrip().split(":", 2)
        if controllers == "":
            yield from _left("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _left("/sys/fs/cgroup/memory", path, *names)


def _left(root: str, path: str, limit: str, used: str, droppable: str) -> Iterator[int]:
    while True:
        folder = root + path
        most, now = (_number(f"{folder}/{name}") for name in (limit, used))
        if most is not None and now is not None and most < _UNLIMITED:
            files = [int(line.split()[1]) for line in _lines(f"{folder}/memory.stat") if line.split()[0] == droppable]
            yield most - now + sum(files)
        if path in ("", "/"):
            return
        path = os.path.dirname(path)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _fields(path: str) -> dict[str, int]:
    """The sizes in a file of `Name: 12 kB` lines, in bytes."""
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
