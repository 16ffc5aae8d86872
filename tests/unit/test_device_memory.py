"""Free memory of a machine, as far as its files show."""

from __future__ import annotations

import pytest

from webpte.device.memory import RESERVED_BYTES, allocated_bytes, limit_allocations, memory_limit, track_buffer
from webpte.host_memory import _remaining

MB = 1 << 20
V2 = "memory.max", "memory.current", "inactive_file"


def group(folder, limit: str, used: int, droppable: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {droppable}\n")


def test_memory_limit_counts_each_parent_cgroup(tmp_path):
    group(tmp_path / "a", str(100 * MB), 60 * MB, 20 * MB)
    group(tmp_path / "a" / "b", "max", 50 * MB, 0)
    group(tmp_path / "a" / "b" / "c", str(90 * MB), 50 * MB, 10 * MB)
    assert list(_remaining(str(tmp_path), "/a/b/c", *V2)) == [50 * MB, 60 * MB]


def test_groups_that_cannot_be_read_limit_nothing(tmp_path):
    assert list(_remaining(str(tmp_path), "/gone", *V2)) == []


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
