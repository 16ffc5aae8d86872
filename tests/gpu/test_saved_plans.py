"""Plans that were saved and opened again: all that a method does, it does from them, and nothing else."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import webpte
from tests.gpu.test_snapshots import write_program
from tests.support.harness.children import run_python
from tests.support.harness.errors import check, raises
from tests.support.harness.writer import ALONE, Method, pte_file, simple_pte
from webpte import container as c
from webpte.container import DType, KernelCall
from webpte.runtime.kernels import KERNELS

F32, I32 = DType.FLOAT32, DType.INT32
TOY = "toy::next.out"


def rows(count, start=0.0):
    return (np.arange(count * 3, dtype=np.float32).reshape(count, 3) + start) / 7


@pytest.fixture
def scaled(tmp_path):
    """y = x * w for up to 5 rows, exported with a weight."""
    file = tmp_path / "scaled.pte"
    values = [c.VkTensor(F32, (5, 3)), c.VkTensor(F32, (3,), constant_id=0), c.VkTensor(F32, (5, 3))]
    simple_pte(
        file, values, [("aten.mul.Tensor", (0, 1, 2))], [0], [2], [np.array([1, 10, 100], np.float32)], dynamic=True
    )
    return file


def test_saved_plan_runs_at_saved_shapes(scaled, tmp_path):
    with webpte.load(scaled) as program:
        method = program.method()
        want = [method(rows(n)) for n in (3, 5)]
        method.save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan") as plan:
        saved = plan.method()
        assert plan.name == "forward" and saved is plan.method()
        assert [str(i) for i in saved.inputs] == ["f32[<=5, 3]"] and saved.lowerings == 0
        for n, expected in zip((3, 5), want, strict=True):
            assert saved(rows(n)).tobytes() == expected.tobytes()
        with raises(webpte.ShapeError, "input 0 [3, 3]", "input 0 [5, 3]", "input 0 [2, 3]", code="not_saved"):
            saved(rows(2))
        with raises(webpte.InputError, "forward", code="no_graph"):
            _ = saved.planner
    with pytest.raises(webpte.ClosedError):
        saved(rows(3))


def test_shapes_can_be_named(scaled, tmp_path):
    with webpte.load(scaled) as program:
        method = program.method()
        method.save(tmp_path / "plan", shapes=[[(2, 3)], [(4, 3)]])
        want = method(rows(4))
        for shapes, code, values in (
            ([[]], "input_count", ["1 inputs", "0 shapes"]),
            ([[(6, 3)]], "bound", ["[6, 3]", "[<=5, 3]"]),
            ([[(-1,)]], None, ["shapes[0][0]", -1]),
        ):
            with raises(webpte.InputError, *values, code=code):
                method.save(tmp_path / "other", shapes=shapes)
        assert not (tmp_path / "other").exists()
    with webpte.open_plan(tmp_path / "plan") as plan:
        assert plan.method()(rows(4)).tobytes() == want.tobytes()


def test_saved_plan_keeps_more_shapes_than_method(tmp_path):
    values = [c.VkTensor(F32, (100,)), c.VkTensor(F32, (100,))]
    simple_pte(tmp_path / "negative.pte", values, [("aten.neg.default", (0, 1))], [0], [1], dynamic=True)
    with webpte.load(tmp_path / "negative.pte") as program:
        program.method().save(tmp_path / "plan", shapes=[[(n,)] for n in range(1, 101)])
    with webpte.open_plan(tmp_path / "plan") as plan:
        for n in (1, 2, 50, 100):
            assert plan.method()(np.ones(n, np.float32)).tolist() == [-1] * n


# In another process, which must not read the program's graph: neither the flatbuffer reader nor a lowering may run.
RUN = """
import sys
import numpy as np
import webpte
from webpte.container import flat
from webpte.plan import planner

def refuse(*args, **more):
    raise AssertionError("a graph is read")

flat.FlatBuffer.__init__ = planner.Lowering.__init__ = refuse
with webpte.open_plan(sys.argv[1], [sys.argv[2]]) as plan:
    print(plan.method()(np.load(sys.argv[3])).tobytes().hex())
try:
    webpte.load(sys.argv[2])
except AssertionError:
    print("refused")
"""


def test_saved_plan_other_process_needs_no_graph(scaled, tmp_path):
    np.save(tmp_path / "x.npy", rows(5))
    with webpte.load(scaled) as program:
        method = program.method()
        want = method(rows(5))
        method.save(tmp_path / "plan")
    printed = run_python(RUN, tmp_path / "plan", scaled, tmp_path / "x.npy").split()
    assert printed == [want.tobytes().hex(), "refused"]


def test_state_is_kept_reset_forked_and_exchanged(tmp_path):
    """A cache, written at a position; constants lie in a .ptd file."""
    x = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 1, 4)
    file, data = write_program(tmp_path, 2.0)
    with webpte.load(file, data) as program:
        method = program.method()
        method(x, 3)
        method.snapshot(tmp_path / "state")
        method.save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan") as plan:
        saved = plan.method()
        assert saved.counters.constant_bytes > 0
        saved(x, 3)
        saved.snapshot(tmp_path / "its state")
        assert (tmp_path / "its state").read_bytes() == (tmp_path / "state").read_bytes()
        fork = saved.fork()
        saved.reset()
        saved.snapshot(tmp_path / "nothing")
        assert (tmp_path / "nothing").read_bytes() != (tmp_path / "state").read_bytes()
        saved.restore(tmp_path / "state")
        fork.snapshot(tmp_path / "fork")
        assert (tmp_path / "fork").read_bytes() == (tmp_path / "state").read_bytes()
        with pytest.raises(webpte.GuardError):
            saved(x, 8)  # the cache has 8 rows


def toy_program(tmp_path):
    """(x + x) on the device, + 1 by a kernel that only the CPU has, and doubled on the device again."""
    values = [c.TensorValue(F32, (4,), (0,), place=ALONE, dynamic=True) for _ in range(4)]
    one = c.IntValue(1)

    def add(a, out):
        return KernelCall("aten::add.out", (a, a, 4, out, out))

    steps = [add(0, 1), KernelCall(TOY, (1, 2, 2)), add(2, 3)]
    pte_file(tmp_path / "toy.pte", [Method(values=[*values, one], inputs=[0], outputs=[3], instructions=steps)])
    return tmp_path / "toy.pte"


def test_stages_on_the_host_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(KERNELS, TOY, lambda x: x + x.dtype.type(1))
    x = np.array([1, 2, 3], np.float32)
    with webpte.load(toy_program(tmp_path)) as program:
        method = program.method()
        before = method.counters.snapshot()
        want = method(x)
        assert want.tolist() == [6, 10, 14] and method.counters.since(before).submits == 2
        with raises(webpte.InputError, "forward", code="several_submits"):
            method.save(tmp_path / "plan", shapes=[[(2,)]])
        method.save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan") as plan:
        assert plan.method()(x).tobytes() == want.tobytes()
    monkeypatch.delitem(KERNELS, TOY)
    with raises(webpte.UnsupportedError, TOY, code="no_cpu_kernel"):
        webpte.open_plan(tmp_path / "plan")


def counting(tmp_path):
    """n + 1, of integers that callers have in 64 bits."""
    values = [c.VkTensor(I32, (2,)), c.VkInt(1), c.VkTensor(I32, (2,))]
    simple_pte(tmp_path / "n.pte", values, [("aten.add.Scalar", (0, 1, 1, 2))], [0], [2], long_ints=True)
    return tmp_path / "n.pte"


def test_steps_share_a_submit_and_borders_convert(tmp_path):
    n = np.array([5, -7], np.int64)
    with webpte.load(counting(tmp_path)) as program:
        program.method()(n)
        program.method().save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan") as plan:
        saved = plan.method()
        before = saved.counters.snapshot()
        steps = saved.run_steps([[n], [n], [n]], {0: 0}, [0])
        assert [result.tolist() for (result,) in steps] == [[6, -6], [7, -5], [8, -4]]
        assert saved.counters.since(before).submits == 1
        assert steps[0][0].dtype == np.int64
        with raises(webpte.InputError, 1 << 40, code="int32_range"):
            saved(np.array([1 << 40, 0], np.int64))
        with raises(webpte.RangeError, "aten.add.Scalar"):
            saved(np.array([2**31 - 1, 0], np.int64))


# In a process of its own: other tests share this one's device.
LOSE = """
import sys
import numpy as np
import webpte
from tests.support.harness.devices import destroy_device
x = np.load(sys.argv[2])
with webpte.open_plan(sys.argv[1]) as plan:
    method = plan.method()
    destroy_device(method)
    try:
        method(x)
    except webpte.DeviceLost:
        print("lost")
    assert plan.recover()
    print(method(x).tobytes().hex())
"""


def test_saved_plan_lost_device_is_replaced(scaled, tmp_path):
    np.save(tmp_path / "x.npy", rows(5))
    with webpte.load(scaled) as program:
        want = program.method()(rows(5))
        program.method().save(tmp_path / "plan")
    assert run_python(LOSE, tmp_path / "plan", tmp_path / "x.npy").split() == ["lost", want.tobytes().hex()]


def test_saved_plan_beyond_budget_is_refused_before_allocation(scaled, tmp_path):
    with webpte.load(scaled) as program:
        program.method().save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan", memory=1000) as plan, pytest.raises(webpte.OutOfMemory) as caught:
        plan.method()
    check(caught.value, "activation buffer", "constant")
    assert caught.value.needed > caught.value.budget == 1000
    with raises(webpte.InputError, "memory", 0):
        webpte.open_plan(tmp_path / "plan", memory=0)


HEAD = "override wg: u32; @group(1) @binding(2) var<storage, read_write> y: array<f32>;"
HOSTILE = {
    "nonsense": "nonsense",
    "no entry": f"{HEAD} fn other() {{}}",
    "another binding": f"{HEAD} @group(1) @binding(9) var<storage> z: array<f32>;"
    "@compute @workgroup_size(wg) fn main() { y[0] = z[0]; }",
    "a uniform larger than what is bound": f"{HEAD} @group(0) @binding(0) var<uniform> p: array<vec4<f32>, 999>;"
    "@compute @workgroup_size(wg) fn main() { y[0] = p[998].x; }",
    "an array larger than what is bound": "override wg: u32; @group(1) @binding(2) var<storage, read_write> y: "
    "array<f32, 99999>; @compute @workgroup_size(wg) fn main() { y[0] = 1.0; }",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_shaders_that_do_not_fit_are_refused(scaled, tmp_path, text):
    folder = tmp_path / "plan"
    with webpte.load(scaled) as program:
        program.method()(rows(5))
        program.method().save(folder)
    data = json.loads((folder / "plan.json").read_text())
    data["kernels"][0]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "plan.json").write_text(json.dumps(data))
    (folder / "kernel0.wgsl").write_text(text)
    with webpte.open_plan(folder) as plan, pytest.raises(webpte.DeviceError):
        plan.method()(rows(5))
