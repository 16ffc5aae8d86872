"""64-bit edges at every way in: what a method gives is what 64 bits would give, or a typed error."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import DelegateBlob, Method, pte_file, span_of, vk_blob
from webpte import container as c
from webpte.container import DelegateCall, DType, KernelCall, VkInt, VkTensor

I32, I64, F32 = DType.INT32, DType.INT64, DType.FLOAT32
EDGES = [
    0, 1, -1, 46340, 46341, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, -(2**31) + 1, -(2**31), -(2**31) - 1,
    2**32, -(2**32), 2**53 + 1, 2**63 - 1, -(2**63),
]  # fmt: skip
INSIDE = [edge for edge in EDGES if -(2**31) <= edge < 2**31]


def long(*dims, **more):
    return c.TensorValue(I64, dims, tuple(range(len(dims))), place=None if "data" in more else (1, -1), **more)


def wrapped(value):
    return (value + 2**63) % 2**64 - 2**63


def write(path, values, instructions, inputs, outputs, blobs=()):
    delegates = [DelegateBlob(blob) for blob in blobs]
    pte_file(
        path, [Method(values=values, inputs=inputs, outputs=outputs, instructions=instructions, delegates=delegates)]
    )


def delegate_of(op, *more, dtype=I32):
    """Return one call of two tensors of one element, and further numbers."""
    values = [VkTensor(I32, (1,)), VkTensor(I32, (1,)), *map(VkInt, more), VkTensor(I32, (1,))]
    return vk_blob(values, [(op, range(len(values)))], [0, 1], [len(values) - 1])


ARITHMETIC = {
    "add": ("aten.add.Tensor", (1,), operator.add),
    "sub": ("aten.sub.Tensor", (1,), operator.sub),
    "three times": ("aten.sub.Tensor", (3,), lambda a, b: a - 3 * b),
    "mul": ("aten.mul.Tensor", (), operator.mul),
}


@pytest.fixture(scope="module", params=ARITHMETIC)
def inside(request, tmp_path_factory):
    """Yield a method of one call inside a delegate, and what it computes."""
    op, more, function = ARITHMETIC[request.param]
    path = tmp_path_factory.mktemp("inside") / "p.pte"
    write(path, [long(1), long(1), long(1)], [DelegateCall(0, (0, 1, 2))], [0, 1], [2], [delegate_of(op, *more)])
    with webpte.load(path) as program:
        yield program.method(), function


def attempt(method, *args):
    """What a method gives, as a number, or the error that says why not."""
    try:
        return int(method(*args).item())
    except (webpte.InputError, webpte.RangeError) as error:
        return error


def test_arithmetic_inside_a_delegate(inside):
    method, function = inside
    for a in EDGES:
        for b in EDGES:
            got, exact = attempt(method, np.array([a]), np.array([b])), function(a, b)
            fits = a in INSIDE and b in INSIDE and -(2**31) <= exact < 2**31
            assert (got == exact) if fits else isinstance(got, webpte.Error), (a, b, got, exact)


@pytest.mark.parametrize(
    ("op", "more", "function"),
    [
        ("aten::add.out", (1,), operator.add),
        ("aten::sub.out", (1,), operator.sub),
        ("aten::mul.out", (), operator.mul),
        ("aten::minimum.out", (), min),
    ],
)
def test_kernel_calls_compute_in_64_bits(op, more, function, tmp_path):
    values = [long(1), long(1), *map(c.IntValue, more), long(1)]
    out = len(values) - 1
    write(tmp_path / "p.pte", values, [KernelCall(op, (*range(len(values)), out))], [0, 1], [out])
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        for a in EDGES:
            for b in EDGES:
                got = attempt(method, np.array([a]), np.array([b]))
                assert got == wrapped(function(a, b)), (a, b, got)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """x + 1 by a kernel call, then times 1 in a delegate: what the CPU made goes to the device."""
    path = tmp_path_factory.mktemp("mixed") / "p.pte"
    values = [long(1), c.IntValue(1), c.IntValue(1), long(1), long(1, data=span_of(np.array([1]))), long(1)]
    instructions = [KernelCall("aten::add.out", (0, 1, 2, 3, 3)), DelegateCall(0, (3, 4, 5))]
    write(path, values, instructions, [0], [3, 5], [delegate_of("aten.mul.Tensor")])
    with webpte.load(path) as program:
        yield program.method()


@pytest.mark.parametrize("edge", EDGES)
def test_cpu_result_out_of_int32_range_raises(mixed, edge):
    if -(2**31) <= wrapped(edge + 1) < 2**31:
        assert [int(y.item()) for y in mixed.run([np.array([edge])])] == [wrapped(edge + 1)] * 2
    else:
        with raises(webpte.RangeError, "value 3,", "aten::add.out (instruction 0)"):
            mixed.run([np.array([edge])])


@pytest.mark.parametrize("edge", EDGES)
def test_numbers(edge, tmp_path):
    """An integer input that is not a tensor becomes the start of a range."""
    values = [c.IntValue(0), c.IntValue(1), c.IntValue(0), long(3), c.IntValue(3)]
    instructions = [
        KernelCall("executorch_prim::add.Scalar", (0, 4, 2)),
        KernelCall("aten::arange.start_out", (0, 2, 1, 3, 3)),
    ]
    write(tmp_path / "p.pte", values, instructions, [0], [3])
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        if edge in INSIDE and edge + 2 < 2**31:
            assert method(edge).tolist() == [edge, edge + 1, edge + 2]
        else:
            with pytest.raises((webpte.InputError, webpte.RangeError)):
                method(edge)


@pytest.mark.parametrize("edge", EDGES)
def test_constants(edge, tmp_path):
    """In a kernel call they are what they are; a delegate refuses at load what it cannot hold."""
    held = long(1, data=span_of(np.array([edge])))
    truth = c.TensorValue(DType.BOOL, (1,), (0,), place=(1, -1))
    write(
        tmp_path / "k.pte",
        [truth, held, long(1), long(1)],
        [KernelCall("aten::where.self_out", (0, 1, 2, 3, 3))],
        [0, 2],
        [3],
    )
    with webpte.load(tmp_path / "k.pte") as program:
        assert program.method()(np.array([True]), np.array([5])).item() == edge
        assert program.method()(np.array([False]), np.array([5])).item() == 5
    write(
        tmp_path / "d.pte",
        [long(1), held, long(1)],
        [DelegateCall(0, (0, 1, 2))],
        [0],
        [2],
        [delegate_of("aten.minimum.default")],
    )
    with webpte.load(tmp_path / "d.pte") as program:
        if edge in INSIDE:
            assert program.method()(np.array([7])).item() == min(7, edge)
        else:
            with raises(webpte.UnsupportedError, f"{edge} to {edge}", "aten.minimum.default"):
                program.method()


@pytest.mark.parametrize("edge", [e for e in EDGES if e not in (0, 1, -1)])
def test_steps_fed_with_their_own_results(edge, tmp_path):
    """x, x + y, x + 2 y, ...: an overflow is found in whichever step it happens."""
    write(
        tmp_path / "p.pte",
        [long(1), long(1), long(1)],
        [DelegateCall(0, (0, 1, 2))],
        [0, 1],
        [2],
        [delegate_of("aten.add.Tensor", 1)],
    )
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        step = edge // 2
        steps = [(np.array([0]), np.array([step]))] * 2
        if -(2**31) <= 2 * step < 2**31:
            assert [int(y.item()) for (y,) in method.run_steps(steps, {0: 0}, [0])] == [step, 2 * step]
        else:
            with pytest.raises((webpte.InputError, webpte.RangeError)):
                method.run_steps(steps, {0: 0}, [0])
        assert method(np.array([3]), np.array([4])).item() == 7  # nothing of it is left


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("edge", EDGES)
def test_comparisons_with_numbers(op, edge, tmp_path):
    """A delegate compares with a number beyond 32 bits as if it had more."""
    count = len(INSIDE)
    values = [VkTensor(I32, (count,)), VkInt(edge), VkTensor(DType.BOOL, (count,))]
    blob = vk_blob(values, [(f"aten.{op}.Scalar", (0, 1, 2))], [0], [2])
    mask = c.TensorValue(DType.BOOL, (count,), (0,), place=(1, -1))
    write(tmp_path / "p.pte", [long(count), mask], [DelegateCall(0, (0, 1))], [0], [1], [blob])
    with webpte.load(tmp_path / "p.pte") as program:
        got = program.method()(np.array(INSIDE))
    assert got.tolist() == [getattr(operator, op)(value, edge) for value in INSIDE]


@pytest.mark.parametrize(
    "value", [2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, float("inf"), float("nan"), 3e38]
)
def test_floats_that_become_integers(value, tmp_path):
    values = [VkTensor(F32, (1,)), *[c.VkNull()] * 4, c.VkBool(False), c.VkNull(), VkTensor(I32, (1,))]
    blob = vk_blob(values, [("aten._to_copy.default", range(len(values)))], [0], [len(values) - 1])
    inputs = c.TensorValue(F32, (1,), (0,), place=(1, -1))
    write(tmp_path / "p.pte", [inputs, long(1)], [DelegateCall(0, (0, 1))], [0], [1], [blob])
    with webpte.load(tmp_path / "p.pte") as program:
        if not np.isfinite(value):  # eager gives what the processor does, and models make such integers and drop them
            program.method()(np.array([value], np.float32))
        elif value in (2147483520.0, -2147483648.0):
            assert program.method()(np.array([value], np.float32)).item() == int(value)
        else:
            with raises(webpte.RangeError, "aten._to_copy.default"):
                program.method()(np.array([value], np.float32))


@pytest.mark.parametrize("edge", EDGES)
def test_state_on_the_host_has_64_bits(edge, tmp_path):
    """A counter that only kernel calls touch; and after a snapshot."""
    state = c.TensorValue(I64, (1,), (0,), place=(2, 0), data=span_of(np.array([1])))
    values = [long(1), state, long(1), c.IntValue(1), c.BoolValue(False)]
    instructions = [KernelCall("aten::add.out", (1, 0, 3, 2, 2)), KernelCall("aten::copy_", (1, 2, 4, 1))]
    write(tmp_path / "p.pte", values, instructions, [0], [2])
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        assert method(np.array([edge])).item() == wrapped(edge + 1)
        method.snapshot(tmp_path / "s")
        method.reset()
        assert method(np.array([0])).item() == 1
        method.restore(tmp_path / "s")
        assert method(np.array([0])).item() == wrapped(edge + 1)


def test_integer_out_of_range_call_leaves_next_call_intact(inside):
    method, function = inside
    for _ in range(2):
        assert (
            isinstance(attempt(method, np.array([2**31 - 1]), np.array([-(2**31)])), webpte.Error)
            or function(1, 1) == 2
        )
        assert attempt(method, np.array([2]), np.array([3])) == function(2, 3)
