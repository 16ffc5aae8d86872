"""Free memory of a machine, as far as its files show."""

from __future__ import annotations

from pathlib import Path

import pytest

from webpte.device.memory import RESERVED_BYTES, allocated_bytes, limit_allocations, memory_limit, track_buffer
from webpte.host_memory import _remaining_in_groups

MB = 1 << 20
NAMES = {
    "v2": ("0:", "", "memory.max", "memory.current", "inactive_file"),
    "v1": ("4:memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


@pytest.fixture(params=NAMES)
def groups(request, tmp_path, monkeypatch):
    """Return a function that writes a control group of this process, whose path is /a/b/c."""
    controllers, top, limit_name, used_name, droppable_name = NAMES[request.param]
    (tmp_path / "cgroup").write_text(f"9:pids:/\n{controllers}:/a/b/c\n")
    monkeypatch.setattr("webpte.host_memory.PROCESS_GROUPS", str(tmp_path / "cgroup"))
    monkeypatch.setattr("webpte.host_memory.GROUPS", str(tmp_path))

    def write(path: str, limit: int | str, used: int, droppable: int) -> Path:
        folder = tmp_path / top / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit_name).write_text(f"{limit}\n")
        (folder / used_name).write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{droppable_name} {droppable}\n")
        return folder

    return write


NO_LIMIT = ((1 << 63) - 4096, "max")  # of version 1 and 2


def test_memory_limit_counts_each_parent_cgroup(groups):
    groups("a", 100 * MB, 60 * MB, 20 * MB)
    groups("a/b/c", 90 * MB, 50 * MB, 10 * MB)
    for nothing in NO_LIMIT:
        groups("a/b", nothing, 50 * MB, 0)
        assert list(_remaining_in_groups()) == [50 * MB, 60 * MB]


def test_group_of_a_container_is_at_the_root(groups):
    """Its path is the one of the host, or `/`."""
    groups("", 2048 * MB, 48 * MB, 0)
    assert list(_remaining_in_groups()) == [2000 * MB]


def test_group_is_not_filled_beyond_memory_high(groups):
    folder = groups("a", 100 * MB, 60 * MB, 20 * MB)
    (folder / "memory.high").write_text(f"{70 * MB}\n")
    if folder.parts[-2] != "memory":  # version 1 has no such file
        assert list(_remaining_in_groups()) == [60 * MB, 30 * MB]


def test_groups_that_cannot_be_read_limit_nothing(groups):
    assert list(_remaining_in_groups()) == []


@pytest.mark.parametrize("kind", ["IntegratedGPU", "Unknown"])
def test_integrated_device_has_at_most_the_memory_of_its_container(groups, kind):
    whole = memory_limit(kind, 0).nbytes
    groups("", 1 << 50, 0, 0)  # above the machine's
    assert memory_limit(kind, 0) == (whole, "the memory of this machine")
    groups("", 64 * MB, 48 * MB, 0)
    assert memory_limit(kind, 0) == (64 * MB, "the control group's limit")


def test_memory_limit_discrete_unknown_integrated_shares_host():
    assert memory_limit("DiscreteGPU", 0).nbytes is None
    assert memory_limit("IntegratedGPU", 0).nbytes == memory_limit("Unknown", 0).nbytes


@pytest.mark.parametrize("held", [0, 64 * MB])
def test_memory_limit_software_device_is_available_less_reserve(monkeypatch, held):
    sizes = {"/proc/meminfo": {"MemAvailable": 1000 * MB}, "/proc/self/status": {"RssAnon": 48 * MB, "RssShmem": 0}}
    monkeypatch.setattr("webpte.host_memory._fields", sizes.__getitem__)
    monkeypatch.setattr("webpte.host_memory._remaining_in_groups", lambda: [900 * MB])
    # Of what is held, 48 MB are resident and no longer free; the rest is still to come.
    assert memory_limit("CPU", held).nbytes == 900 * MB + min(held, 48 * MB) - RESERVED_BYTES
    monkeypatch.setattr("webpte.host_memory._remaining_in_groups", lambda: [RESERVED_BYTES // 2])
    assert memory_limit("CPU", held).nbytes == max(0, min(held, 48 * MB) - RESERVED_BYTES // 2)


def test_limit_of_the_process_is_at_least_what_it_has_allocated(monkeypatch):
    monkeypatch.setattr("webpte.device.memory._process_limit", None)

    class Buffer:
        pass

    buffer = Buffer()
    track_buffer(buffer, 5 * MB)
    allocated = allocated_bytes()
    assert allocated >= 5 * MB and limit_allocations(allocated + MB) == allocated
    assert memory_limit("DiscreteGPU", allocated).nbytes == memory_limit("CPU", allocated).nbytes == allocated + MB
    assert limit_allocations(0) == allocated and memory_limit("CPU", allocated).nbytes == allocated
