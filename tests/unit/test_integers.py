"""64-bit integers on a device that has 32: what runs on the CPU, what is checked, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from tests.support.harness.writer import span_of
from webpte.errors import GraphError, RangeError, UnsupportedError
from webpte.graph import Call, Constant, DType, Int, Jump, Origin, String, TensorSpec
from webpte.graph.names import OVERFLOW
from webpte.lowering import Context, Integers, OpTraits, Tensor, op, overload, registered, unregister
from webpte.lowering.integers import BITS32, OverflowCheck, Range, elements_of
from webpte.plan import make_planner
from webpte.plan.integers import exact_integers
from webpte.runtime.kernels import CpuKernels
from webpte.wgsl import Caps

I32, I64 = DType.INT32, DType.INT64


class Builder(GraphBuilder):
    """Calls inside delegate 0 and kernel calls between them; tensors are int64 in the program."""

    def long(self, *dims, **options):
        return self.add(TensorSpec(I32, dims, I64, **options))

    def inner(self, *dims):
        """Return a tensor that lives inside the delegate, where the exporter has narrowed it."""
        return self.tensor(*dims, dtype=I32)

    def held(self, values, dtype=I64):
        array = np.asarray(values, dtype.numpy)
        return self.add(TensorSpec(I32, array.shape, dtype, constant=Constant(span_of(array), dtype, "numbers")))

    def delegated(self, name, args, *outs):
        self.steps.append(Call(name, tuple(args), outs, Origin(0, 0, len(self.steps))))

    def kernel(self, name, args, *outs):
        self.steps.append(Call(name, tuple(args), outs, Origin(len(self.steps) + 1), kernel=True))

    def exact(self, inputs, outputs):
        return exact_integers(self.graph(inputs, outputs), CpuKernels())


def checks(graph):
    return [
        (graph.values[c.args[0]].value, c.args[1:3], graph.values[c.args[3]].value)
        for c in graph.calls
        if c.name == OVERFLOW
    ]


def on_host(graph):
    return [call.name for call in graph.calls if call.on_host]


@pytest.mark.parametrize(
    ("op", "kind", "alpha"),
    [
        ("aten.add.Tensor", "add", 3),
        ("aten.sub.Tensor", "add", -3),
        ("aten.mul.Tensor", "mul", 1),
        ("aten.pow.Tensor_Tensor", "pow", 1),
    ],
)
def test_arithmetic_in_a_delegate_is_checked(op, kind, alpha):
    b = Builder()
    x, y, out = b.long(5), b.long(5), b.long(5)
    more = (b.number(3),) if abs(alpha) == 3 else ()
    b.delegated(op, (x, y, *more), out)
    graph = b.exact([x, y], [out])
    assert checks(graph) == [(kind, (x, y), alpha)]
    assert [c.name for c in graph.calls] == [op, OVERFLOW]  # after it: what it reads is still there


def test_integers_32_bit_in_model_wrap_without_check():
    b = Builder()
    x, inside, out = b.tensor(5, dtype=I32), b.inner(5), b.tensor(5, dtype=I32)
    b.delegated("aten.view_copy.default", (x, b.list(b.number(5))), inside)
    b.delegated("aten.mul.Tensor", (inside, inside), out)
    assert checks(b.exact([x], [out])) == []


def test_integers_between_narrowed_values_are_checked():
    b = Builder()
    x, inside, twice, out = b.long(5), b.inner(5), b.inner(5), b.tensor(5, dtype=DType.FLOAT32)
    b.delegated("aten.mul.Tensor", (x, x), inside)
    b.delegated("aten.mul.Tensor", (inside, inside), twice)
    b.delegated("aten._to_copy.default", (twice,), out)
    assert [kind for kind, _, _ in checks(b.exact([x], [out]))] == ["mul", "mul"]


def test_floats_that_become_integers_are_checked():
    b = Builder()
    x, out = b.tensor(5), b.long(5)
    b.delegated("aten._to_copy.default", (x,), out)
    ((kind, (source, _), _),) = checks(b.exact([x], [out]))
    assert (kind, source) == ("cast", x)


@pytest.mark.parametrize(("high", "checked"), [(2**31 - 12, False), (2**31 - 11, True)])
def test_constants_and_bounds_prove_that_nothing_overflows(high, checked):
    """0..11 and a constant: the largest sum is exactly 2**31 - 1, or one more."""
    b = Builder()
    spaced, out = b.inner(12), b.long(12)
    b.delegated("aten.arange.start_step", [b.number(n) for n in (0, 12, 1)], spaced)
    b.delegated("aten.add.Tensor", (spaced, b.held([high]), b.number(1)), out)
    assert bool(checks(b.exact([], [out]))) is checked


def test_integers_summed_mask_stays_on_device():
    for dtype, host in ((DType.BOOL, []), (I64, ["aten::cumsum.out"])):
        b = Builder()
        x = b.add(TensorSpec(I32 if dtype is I64 else dtype, (2, 300), dtype))
        whole, out = b.long(2, 300), b.long(2, 300)
        b.kernel("aten::_to_copy.out", (x, b.null(), b.null()), whole)
        b.kernel("aten::cumsum.out", (whole, b.number(1), b.null()), out)
        assert on_host(b.exact([x], [out])) == host, dtype


def test_outside_delegates_64_bits_are_computed_on_the_cpu():
    b = Builder()
    x, more, moved, mask = b.long(6), b.long(6), b.long(2, 3), b.tensor(2, 3, dtype=DType.BOOL)
    b.kernel("aten::add.out", (x, b.number(1), b.number(1)), more)
    b.kernel("aten::view_copy.out", (more, b.list(b.number(2), b.number(3))), moved)
    b.kernel("aten::gt.Scalar_out", (moved, b.number(5)), mask)
    assert on_host(b.exact([x], [mask])) == ["aten::add.out", "aten::view_copy.out", "aten::gt.Scalar_out"]


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
def test_bytes_of_64_bits_are_converted_on_the_cpu(dtype):
    b = Builder()
    x, more, code = b.long(6), b.long(6), b.tensor(6, dtype=dtype)
    b.kernel("aten::add.out", (x, b.number(1), b.number(1)), more)
    b.kernel("aten::_to_copy.out", (more, b.null(), b.null()), code)
    assert on_host(b.exact([x], [code])) == ["aten::add.out", "aten::_to_copy.out"]


def test_integer_moves_within_range_stay_on_the_device():
    b = Builder()
    x, moved = b.long(6), b.long(2, 3)
    b.kernel("aten::view_copy.out", (x, b.list(b.number(2), b.number(3))), moved)
    assert on_host(b.exact([x], [moved])) == []


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1])
def test_literals_beyond_32_bits(number):
    b = Builder()
    x, out = b.long(6), b.long(6)
    b.kernel("aten::full_like.out", (x, b.number(number), b.null()), out)
    assert on_host(b.exact([x], [out])) == ["aten::full_like.out"]
    b = Builder()
    x, out = b.long(6), b.long(6)
    b.delegated("aten.clamp.default", (x, b.number(0), b.number(abs(number))), out)
    make_planner(b.graph([x], [out]), Caps(), CpuKernels())  # a bound that no value reaches
    b = Builder()
    x, out = b.long(6), b.long(6)
    nulls = [b.null() for _ in range(5)]
    b.delegated("aten.full_like.default", (x, b.number(number), *nulls), out)
    with raises(RangeError, "aten.full_like.default", number):
        make_planner(b.graph([x], [out]), Caps(), CpuKernels())


@pytest.mark.parametrize(("low", "high"), [(2**31, None), (None, -(2**31) - 1)])
def test_integers_clamp_bound_beyond_32_bits_is_refused(low, high):
    b = Builder()
    x, out = b.long(6), b.long(6)
    bounds = [b.null() if bound is None else b.number(bound) for bound in (low, high)]
    b.delegated("aten.clamp.default", (x, *bounds), out)
    with raises(RangeError, "aten.clamp.default", low, high):
        make_planner(b.graph([x], [out]), Caps(), CpuKernels())


@pytest.mark.parametrize(("largest", "fits"), [(2**31 - 1, True), (2**31, False)])
def test_constants_that_a_delegate_uses(largest, fits):
    b = Builder()
    x, out = b.long(2), b.long(2)
    b.delegated("aten.minimum.default", (x, b.held([largest, 0])), out)
    if fits:
        b.exact([x], [out])
        return
    with raises(UnsupportedError, "numbers (value 2)", f"0 to {largest};", "aten.minimum.default", code="wide_integer"):
        b.exact([x], [out])


def test_integers_constant_cut_by_exporter_is_refused():
    """The program still has the whole one: what the delegate computes with is something else."""
    b = Builder()
    x, packed, mask, out = b.long(2), b.inner(2), b.tensor(2, dtype=DType.BOOL), b.long(2)
    whole, cut = b.held([2**40, 7]), b.held([0, 7], I32)
    b.delegated("et_vk.prepack.default", (cut,), packed)
    b.delegated("aten.gt.Tensor", (packed, x), mask)
    b.kernel("aten::where.self_out", (mask, whole, x), out)
    with raises(UnsupportedError, f"7 to {2**40};", "aten.gt.Tensor", code="wide_integer"):
        b.exact([x], [out])


def test_integers_wide_constant_between_delegates_runs_on_cpu():
    b = Builder()
    mask, x, out = b.tensor(2, dtype=DType.BOOL), b.long(2), b.long(2)
    b.kernel("aten::where.self_out", (mask, b.held([2**40, 7]), x), out)
    assert on_host(b.exact([mask, x], [out])) == ["aten::where.self_out"]


def test_doubles_outside_delegates_are_computed_as_doubles():
    b = Builder()
    x, out = (b.add(TensorSpec(DType.FLOAT32, (6,), DType.FLOAT64)) for _ in range(2))
    b.kernel("aten::mul.out", (x, x), out)
    assert on_host(b.exact([x], [out])) == ["aten::mul.out"]


def test_integer_checks_keep_jump_targets():
    b = Builder()
    x, out, condition = b.long(3), b.long(3), b.tensor(1, dtype=DType.BOOL)
    b.delegated("aten.mul.Tensor", (x, x), out)
    b.steps.append(Jump(condition, 3, Origin(1)))
    b.delegated("aten.mul.Tensor", (x, x), out)
    b.delegated("aten.mul.Tensor", (x, x), out)
    graph = b.exact([x, condition], [out])
    jump = next(step for step in graph.steps if isinstance(step, Jump))
    assert graph.steps[jump.target].origin == b.steps[3].origin and graph.steps[jump.target].name != OVERFLOW


def test_integers_replanning_adds_no_second_check():
    b = Builder()
    x, out = b.long(3), b.long(3)
    b.delegated("aten.mul.Tensor", (x, x), out)
    once = b.exact([x], [out])
    assert exact_integers(once, CpuKernels()) == once
    assert isinstance(once.values[once.calls[1].args[-1]], String)


@pytest.mark.parametrize("dim", [2, -3])
def test_integers_size_of_missing_dim_is_left_to_op(dim):
    b = Builder()
    x, size = b.long(3, 4), b.symint()
    b.delegated("sym_size.int", (x, b.number(dim)), size)
    assert b.exact([x], [size]).calls[0].name == "sym_size.int"


def test_ranges():
    assert Range(0, 5).cut(BITS32) == Range(0, 5) and Range(2**40, 2**41).cut(BITS32) == BITS32
    assert Int(1) == Int(1)


def test_integers_trait_of_user_op_is_used():
    """A sum of squares is checked as a product; a shuffle moves what it is given, so nothing has to be looked at."""

    @op(
        "toy.squares.default",
        traits=OpTraits(integers=Integers(lambda operands: Range(0, 2**40), OverflowCheck("mul", "x", "x"))),
    )
    def squares(cx: Context, x: Tensor, *, out: Tensor) -> None: ...

    @op("toy.shuffle.default", kernels=("toy::shuffle.out",), traits=OpTraits(integers=elements_of("x")))
    def shuffle(cx: Context, seed: int, x: Tensor, *, out: Tensor) -> None: ...

    try:
        b = Builder()
        x, squared, small, shuffled, out = b.long(3), b.long(3), b.held([5, 7]), b.long(2), b.long(2)
        b.delegated("toy.squares.default", (x,), squared)
        b.delegated("toy.shuffle.default", (b.number(3), small), shuffled)
        b.delegated("aten.mul.Tensor", (shuffled, shuffled), out)
        assert checks(b.exact([x], [squared, out])) == [("mul", (x, x), 1)]
    finally:
        unregister(squares)
        unregister(shuffle)


def test_integers_cpu_only_overload_follows_others():
    b = Builder()
    x, low, high, out = b.long(3), b.held([0, 0, 0]), b.held([9, 9, 9]), b.long(3)
    call = Call("aten::clamp.Tensor_out", (x, low, high), (out,), Origin(0), kernel=True)
    clamp = overload(call)
    assert clamp is not None and clamp is registered()["aten.clamp.default"]
    assert clamp.shared_arguments(call) == {"self": x, "min": low, "max": high}
    assert overload(Call("toy::clamp.out", (x,), (out,), Origin(0), kernel=True)) is None
    assert overload(Call("clamp", (x,), (out,), Origin(0, 0, 0))) is None


def test_integers_trait_of_unknown_argument_is_refused():
    with raises(GraphError, "wrong", "'y'", "one of x", code="unknown_argument"):

        @op("toy.wrong.default", traits=OpTraits(integers=elements_of("y")))
        def wrong(cx: Context, x: Tensor, *, out: Tensor) -> None: ...
