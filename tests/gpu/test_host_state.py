"""State that CPU kernels touch: read from wherever it lives, written there when the call is done, never half of it."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.interruption import Interrupter, bounded, first_moments
from tests.support.harness.writer import ALONE, Method, pte_file, span_of
from webpte import container as c
from webpte.container import DType, JumpFalseCall, KernelCall
from webpte.runtime.kernels import KERNELS

F32, I64 = DType.FLOAT32, DType.INT64
NEXT, VIEW, BREAK = "toy::next.out", "toy::view.out", "toy::break.out"


def _break(x):
    if (x < 0).any():
        raise ValueError("negative")
    return x + 1


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """Kernels that only the CPU has: x + 1, x itself, and one that refuses what is negative."""
    monkeypatch.setitem(KERNELS, NEXT, lambda x: x + x.dtype.type(1))
    monkeypatch.setitem(KERNELS, VIEW, lambda x: x)
    monkeypatch.setitem(KERNELS, BREAK, _break)


def tensor(*dims, dtype=F32, **more):
    return c.TensorValue(dtype, dims, tuple(range(len(dims))), place=ALONE, **more)


def on_cpu(kernel, source, target):
    return KernelCall(kernel, (source, target, target))


def write(path, values, instructions, inputs, outputs):
    pte_file(path, [Method(values=values, inputs=inputs, outputs=outputs, instructions=instructions)])
    return path


STATE, X, A, B, ONE, NO = range(6)


def values(**state):
    """Four tensors of four, the first of which is read before it is written; a 1, and a False."""
    return [tensor(4, **state), tensor(4), tensor(4), tensor(4), c.IntValue(1), c.BoolValue(False)]


def add(a, b, out):
    return KernelCall("aten::add.out", (a, b, ONE, out, out))


def copy(target, source):
    return KernelCall("aten::copy_", (target, source, NO, target))


def vector(value):
    return np.full(4, value, np.float32)


# -- state that no kernel of the device touches ------------------------------------------------------------------------


@pytest.fixture(params=[None, 5_000_000_000], ids=["from zero", "from five billion"])
def counter(tmp_path, request):
    """Yield a 64-bit counter that is written, returned, and returned once more by a kernel that makes no copy."""
    start = request.param or 0
    data = {"data": span_of(np.full(4, start, np.int64))} if start else {}
    values = [tensor(4, dtype=I64, **data), tensor(4, dtype=I64)]
    path = write(tmp_path / "p.pte", values, [on_cpu(NEXT, 0, 0), on_cpu(VIEW, 0, 1)], [], [0, 1])
    with webpte.load(path) as program:
        yield program.method(), start


def count(method):
    first, second = method.run([])
    assert first.dtype == np.int64 and np.array_equal(first, second) and np.ptp(first) == 0
    first += 1000  # the caller's own
    second += 1000
    return int(first[0]) - 1000


def test_persists_in_the_dtype_of_the_program_and_takes_no_gpu(counter):
    method, start = counter
    assert not method.plan.flow.segments and method.plan.host_state == (0,)
    assert [count(method) for _ in range(3)] == [start + 1, start + 2, start + 3]
    method.reset()
    assert count(method) == start + 1


def test_host_state_belongs_to_each_fork(counter):
    method, start = counter
    count(method)
    fork = method.fork()
    assert [count(fork), count(fork), count(method)] == [start + 2, start + 3, start + 2]
    fork.reset()
    assert [count(fork), count(method)] == [start + 1, start + 3]


def test_host_state_is_part_of_snapshot(counter, tmp_path):
    method, start = counter
    count(method)
    method.snapshot(tmp_path / "state")
    count(method)
    with webpte.load(tmp_path / "p.pte") as again:
        again.method().restore(tmp_path / "state")
        assert count(again.method()) == start + 2
    assert count(method) == start + 3
    method.restore(tmp_path / "state")
    assert count(method) == start + 2


def test_host_state_copied_from_input_ignores_caller_changes(tmp_path):
    """The kernel returns its argument, which is the caller's array."""
    tensors = [tensor(4, dtype=I64), tensor(4, dtype=I64), tensor(4, dtype=I64)]
    path = write(tmp_path / "p.pte", tensors, [on_cpu(NEXT, STATE, A), on_cpu(VIEW, X, STATE)], [X], [A])
    with webpte.load(path) as program:
        method, x = program.method(), np.arange(4)
        assert method.plan.host_state == (STATE,)
        assert method(x).tolist() == [1, 1, 1, 1]
        x += 1000
        assert method(x).tolist() == [1, 2, 3, 4]


def test_host_state_failing_call_leaves_it_unchanged(tmp_path):
    path = write(tmp_path / "p.pte", values(), [on_cpu(NEXT, STATE, STATE), on_cpu(BREAK, X, A)], [X], [STATE])
    with webpte.load(path) as program:
        method = program.method()
        assert method(vector(0))[0] == 1
        with raises(webpte.GraphError, BREAK, "ValueError: negative"):
            method(vector(-1))
        assert method(vector(0))[0] == 2


# -- state that both touch ---------------------------------------------------------------------------------------------


def both(path, **state):
    """a = state + x on the device; state += 1 on the CPU; b = state + x on the device."""
    calls = [add(STATE, X, A), on_cpu(NEXT, STATE, STATE), add(STATE, X, B)]
    return write(path, values(**state), calls, [X], [A, B])


@pytest.mark.parametrize("start", [0, 7])
def test_host_state_read_before_and_after_cpu_write(tmp_path, start):
    state = {"data": span_of(vector(start))} if start else {}
    with webpte.load(both(tmp_path / "p.pte", **state)) as program:
        method = program.method()
        assert method.plan.host_state == ()
        for number in range(start, start + 3):
            a, b = method(vector(10))
            assert (a[0], b[0]) == (10 + number, 11 + number)
        fork = method.fork()
        method.snapshot(tmp_path / "state")
        assert method(vector(0))[0][0] == fork(vector(0))[0][0] == start + 3
        method.reset()
        assert method(vector(0))[0][0] == start
        method.restore(tmp_path / "state")
        assert method(vector(0))[0][0] == start + 3


def test_host_state_read_back_between_device_writes(tmp_path):
    """state = x; a = state + 1 on the CPU; state = a + x; b = state + 1 on the CPU."""
    calls = [copy(STATE, X), on_cpu(NEXT, STATE, A), add(A, X, B), copy(STATE, B), on_cpu(NEXT, STATE, B)]
    path = write(tmp_path / "p.pte", values(), calls, [X], [A, B, STATE])
    with webpte.load(path) as program:
        for x in (3, 5):
            results = [result[0] for result in program.method()(vector(x))]
            assert results == [x + 1, x + 1 + x + 1, x + 1 + x]


def test_written_on_the_device_after_the_cpu_and_the_other_way_round(tmp_path):
    """Who writes last has the last word."""
    calls = [on_cpu(NEXT, X, STATE), copy(STATE, X), on_cpu(NEXT, STATE, A), on_cpu(NEXT, A, STATE)]
    path = write(tmp_path / "p.pte", values(), [add(STATE, X, B), *calls], [X], [B, A])
    with webpte.load(path) as program:
        before = 0
        for x in (3, 5, 9):
            b, a = (result[0] for result in program.method()(vector(x)))
            assert (b, a) == (before + x, x + 1)
            before = x + 2


@pytest.mark.parametrize("written", [True, False])
def test_under_a_branch(tmp_path, written):
    """The CPU writes the state only where the flag is set; the device reads it in any case."""
    calls = [JumpFalseCall(6, 2), on_cpu(NEXT, STATE, STATE), add(STATE, X, A)]
    more = [*values(), tensor(1, dtype=DType.BOOL)]
    path = write(tmp_path / "p.pte", more, calls, [X, 6], [A, STATE])
    with webpte.load(path) as program:
        method = program.method()
        total = 0
        for flag in (written, True, False, written, not written):
            total += flag
            a, state = method(vector(10), np.array([flag]))
            assert (a[0], state[0]) == (10 + total, total)


def test_host_state_as_number_in_batched_steps(tmp_path):
    """A position that lives in the state: n = state.item(); b = state + x; state = b."""
    more = [tensor(1), tensor(1), tensor(1), tensor(1), c.IntValue(1), c.BoolValue(False), c.IntValue(0)]
    item = KernelCall("aten::_local_scalar_dense", (STATE, 6))
    path = write(tmp_path / "p.pte", more, [item, add(STATE, X, B), copy(STATE, B)], [X], [B, 6])
    one = np.ones(1, np.float32)
    with webpte.load(path) as program:
        method = program.method()
        results = [method(one) for _ in range(2)] + method.run_steps([[one]] * 3, {}, [0, 1])
        assert [(float(b[0]), n) for b, n in results] == [(k + 1, k) for k in range(5)]


def test_host_state_interrupted_call_is_atomic(tmp_path, device):
    """At every line of a call: the next one finds a state that some number of calls has made."""
    with bounded(), webpte.load(both(tmp_path / "p.pte")) as program:
        method = program.method()
        known = int(method(vector(0))[1][0])
        for at in first_moments(lambda: method(vector(0))):
            method.reset()
            known = int(method(vector(0))[1][0])
            Interrupter(at).run(method, vector(0))
            a, b = method(vector(0))
            assert a[0] in (known, known + 1) and b[0] == a[0] + 1


# -- state of several methods ------------------------------------------------------------------------------------------


@pytest.fixture
def sharing(tmp_path):
    """`forward` adds to a buffer, on the device; `count` does on the CPU; `look` only reads it, in another shape."""

    def buffer(*dims):
        return c.TensorValue(F32, dims, tuple(range(len(dims))), place=(2, 0))

    more = [c.IntValue(1), c.BoolValue(False)]
    adds = Method(
        "forward", [buffer(4), tensor(4), tensor(4), tensor(4), *more], [X], [A], [add(STATE, X, A), copy(STATE, A)]
    )
    counts = Method("count", [buffer(4)], [], [0], [on_cpu(NEXT, 0, 0)])
    looks = Method("look", [buffer(2, 2), tensor(2, 2), tensor(2, 2), tensor(4), *more], [X], [A], [add(STATE, X, A)])
    pte_file(tmp_path / "p.pte", [adds, counts, looks])
    with webpte.load(tmp_path / "p.pte") as program:
        yield program


def test_methods_share_state_that_the_exporter_planned(sharing, tmp_path):
    forward, count, look = (sharing.method(name) for name in ("forward", "count", "look"))
    square = np.zeros((2, 2), np.float32)
    assert count.plan.host_state and not forward.plan.host_state  # wherever each of them keeps it
    assert forward(vector(5))[0] == 5
    assert count.run([])[0][0] == 6
    assert look(square)[0, 0] == 6 and look(square)[1, 1] == 6
    assert forward(vector(5))[0] == 11
    look.snapshot(tmp_path / "state")
    fork = forward.fork()
    assert fork(vector(1))[0] == 12 and look(square)[0, 0] == 11  # a fork's is its own
    count.reset()
    assert forward(vector(1))[0] == 1 and look(square)[0, 0] == 1
    look.restore(tmp_path / "state")
    assert count.run([])[0][0] == 12 and fork(vector(1))[0] == 13


def test_cpu_kernel_in_place_writes_cache(tmp_path):
    """update_cache of bytes, which no kernel of the device takes: the cache is an argument and not a result."""
    u8 = DType.UINT8
    cache, row = tensor(1, 8, 1, 4, dtype=u8), tensor(1, 1, 1, 4, dtype=u8)
    update = KernelCall("llama::update_cache.out", (1, 0, 2, 3, 3))
    kept = [cache, row, c.IntValue(0), tensor(1, dtype=u8), tensor(1, 8, 1, 4, dtype=u8)]
    path = write(tmp_path / "p.pte", kept, [update, on_cpu(VIEW, 0, 4)], [1, 2], [4])
    with webpte.load(path) as program:
        method = program.method()
        want = np.zeros((1, 8, 1, 4), np.uint8)
        for at in (0, 3, 5):
            fork = method.fork()
            want[0, at] = at + 1
            assert np.array_equal(method(np.full((1, 1, 1, 4), at + 1, np.uint8), at), want)
            assert not fork(np.zeros((1, 1, 1, 4), np.uint8), 7)[0, at].any()
