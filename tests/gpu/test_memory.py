"""What a method needs is summed before it is taken: refused below, accepted above, and the sums are true."""

from __future__ import annotations

import gc
import json
import sys
from unittest.mock import patch

import numpy as np
import pytest
import wgpu

import webpte
from tests.support.harness.children import run_python
from tests.support.harness.errors import check, raises
from tests.support.harness.gate import slow_but
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkBool, VkInt, VkIntList, VkNull, VkSymInt, VkTensor
from webpte.device import allocated_bytes

F32 = DType.FLOAT32
ROWS, COLUMNS, POSITIONS = 15_000, 1000, 10_000
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a Linux process")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Write a program with weights of 60 MB, a cache of 40 MB and activations of one MB."""
    path = tmp_path_factory.mktemp("memory") / "p.pte"
    values = [
        VkTensor(F32, (1, 16, 1, COLUMNS)),  # input
        VkTensor(F32, (1, POSITIONS, 1, COLUMNS), constant_id=0),  # the cache
        VkSymInt(0),
        VkInt(0),
        VkTensor(F32, (1,)),
        VkTensor(F32, (1,)),
        VkTensor(F32, (ROWS, COLUMNS), constant_id=1),
        VkNull(),
        VkTensor(F32, (1, 16, 1, ROWS)),
    ]
    calls = [
        ("sym_size.int", (0, 3, 2)),
        ("update_cache.default", (0, 1, 2, 4)),
        ("aten.linear.default", (0, 6, 7, 8)),
    ]
    constants = [np.zeros((POSITIONS, COLUMNS), np.float32), np.ones((ROWS, COLUMNS), np.float32)]
    simple_pte(path, values, calls, [0], [8], constants)
    return path


@pytest.fixture
def many(tmp_path):
    """A small file that keeps many activations alive: the first is added to the second, the sum to the third, ..."""

    def write(count: int, elements: int):
        one = VkTensor(F32, (elements,))
        values = [VkTensor(F32, (1,)), VkIntList((elements,)), VkBool(False), VkInt(1), *[one] * (2 * count)]
        calls = [("aten.expand_copy.default", (0, 1, 2, 4 + i)) for i in range(count)]
        total = 4
        for i in range(1, count):
            calls.append(("aten.add.Tensor", (total, 4 + i, 3, 4 + count + i)))
            total = 4 + count + i
        simple_pte(tmp_path / "many.pte", values, calls, [0], [total])
        return tmp_path / "many.pte"

    return write


def test_memory_report_equals_allocations(path, device):
    gc.collect()  # what other tests left would go in between
    created: list[int] = []
    create = device.device.create_buffer

    def noted(**options):
        created.append(options["size"])
        return create(**options)

    with patch.object(device.device, "create_buffer", noted), webpte.load(path) as program:
        need, before = program.memory("forward"), allocated_bytes()
        assert created == []
        method = program.method()
        method(np.ones((1, 16, 1, COLUMNS), np.float32))
        spare = sum(created) - need.buffers  # the device's own, once
        assert 0 <= spare <= 8192
        assert abs(allocated_bytes() - before - sum(created)) <= 4096  # spare uniforms that only a bind group holds
        assert abs(need.total - sum(created)) <= 0.05 * sum(created)
        assert need.kinds["constant"] == 4 * ROWS * COLUMNS and need.kinds["state"] == 4 * POSITIONS * COLUMNS
        created.clear()
        method.fork()
        assert sum(created) == need.kinds["state"]


def test_load_budget_around_need_refuses_smaller_only(path, device):
    with webpte.load(path) as program:
        need = program.memory("forward").total
        program.method()  # whatever the device itself needs is there now
    gc.collect()
    exact = allocated_bytes() + need
    shares = [1 - 1 / 2**n for n in (1, 9)] + [1 + 1 / 2**8]
    for budget in (exact - 1, exact, *(int(exact * share) for share in shares)):
        gc.collect()
        with webpte.load(path, memory=budget) as program:
            before = device.counters.snapshot()
            if budget >= exact:
                program.method()
                continue
            with pytest.raises(webpte.OutOfMemory) as caught:
                program.method()
            done = device.counters.since(before)
            assert done.buffers == done.bind_groups == done.pipelines == 0
            assert caught.value.needed == exact and caught.value.budget == budget


def test_memory_refusal_states_need_and_options(path, device):
    gc.collect()
    with (
        webpte.load(path, memory=allocated_bytes() + 90_000_000) as program,
        pytest.raises(webpte.OutOfMemory) as caught,
    ):
        program.method()
    text = str(caught.value)
    assert "forward needs 106." in text and "memory=" in text
    for part in ("weights 60.00 MB", "state 40.00 MB", "value 3 f32[1, 10000, 1, 1000]: 40.00 MB", "state of 23.75 MB"):
        assert part in " ".join(text.split()), text
    assert "--max-context" in text and 'kv_cache="f16"' in text


def test_forks_and_other_programs_count(path, device):
    with webpte.load(path) as first:
        first.method()
        need = first.memory("forward")
        gc.collect()
        with webpte.load(path, memory=allocated_bytes() + need.buffers + need.kinds["state"]) as second:
            method = second.method()
            fork = method.fork()
            with pytest.raises(webpte.OutOfMemory) as caught:
                method.fork()
            check(caught.value, "fork of forward", "40.00 MB", "close()")
            assert caught.value.needed > caught.value.budget and "weights" not in str(caught.value)
            del fork
            gc.collect()
            method.fork()


def test_device_out_of_memory_raises_memory_error(path, device, monkeypatch):
    def refuse(**options):
        raise wgpu.GPUOutOfMemoryError("none left")

    with webpte.load(path) as program:
        program.method()
        monkeypatch.setattr(device.device, "create_buffer", refuse)
        with pytest.raises(webpte.OutOfMemory) as caught:
            program.method().fork()
        check(caught.value, "create buffer", "none left")
        assert caught.value.needed == 0  # the device does not say how much it lacks


@pytest.mark.parametrize("memory", [0, -1, 1.5, "1 GB", True])
def test_memory_limit_wrong_type_is_refused(path, memory):
    with raises(webpte.InputError, "memory", 1, repr(memory)):
        webpte.load(path, memory=memory)


CHILD = """
import json, resource, sys
import numpy as np
import webpte
from tests.support.harness.gate import slow_but
from webpte.device import acquire

acquire({})  # the driver itself takes a gigabyte of addresses
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), hard))
try:
    with webpte.load(sys.argv[1]) as program:
        found = float(program.method()(np.ones(1, np.float32)).sum())
except webpte.OutOfMemory as error:
    found = str(error)
print(json.dumps(found))
"""


@linux
def test_load_small_file_of_huge_tensors_is_refused(many):
    path = many(50, 16_500_000)
    assert path.stat().st_size < 20_000
    text = json.loads(run_python(CHILD, path, 2 << 30))
    assert "forward needs 3,432.07 MB" in text and "RLIMIT_AS" in text and "activations" in text


@linux
@pytest.mark.parametrize("room", slow_but([448], [128, 448, 640]))
def test_load_limited_address_space_runs_or_refuses(many, room):
    """Past the limit the driver would crash, so there is no other way to notice than to count."""
    data = json.loads(run_python(CHILD, many(20, 2_500_000), room << 20))  # 10 MB each
    assert data == 20 * 2_500_000 if room >= 640 else "RLIMIT_AS" in data
