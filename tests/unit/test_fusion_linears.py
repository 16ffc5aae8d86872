"""Passes over layers of 4 or 8 bits and over views: the calls that they rewrite or keep; the numbers stay equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.errors import ShapeError
from webpte.fusion import PASSES, apply_passes, narrow_scales
from webpte.fusion.dims import SymbolicDims
from webpte.graph import (
    Bool,
    Constant,
    Double,
    DType,
    Graph,
    Int,
    IntList,
    Jump,
    Null,
    Origin,
    String,
    TensorSpec,
    ValueList,
)
from webpte.lowering import find
from webpte.plan import make_planner
from webpte.wgsl import Caps

Q4, DQ8, FUSED = "et_vk.linear_q4gsw.default", "et_vk.linear_dq8ca_q4gsw.default", "webpte.linear_q4"
INT8 = "aten._weight_int8pack_mm.default"
LINEARS = (
    "qparams",
    "offset-linears",
    "elementwise",
    "gated-linears",
    "joined-linears",
    "epilogues",
    "row-qparams",
    "norm-linears",
    "norm-residuals",
)
CODES = 3
OFFSETS = 11  # the position of this argument of a fused layer
RANDOM = np.random.default_rng(7)


class Builder(GraphBuilder):
    """Graphs with 4-bit layers of 32 inputs."""

    def dims(self, tensor: int) -> tuple[int, ...]:
        spec = self.values[tensor]
        assert isinstance(spec, TensorSpec)
        return spec.dims

    def weight(
        self, rows: int, group: int = 16, padding: int = 0, groups: tuple[int, ...] | None = None, halves: bool = False
    ) -> tuple[int, int, int]:
        """Codes, scales and the group's size. Scales are (*groups, rows + padding), by default a row for each group.

        `halves`: f16 has the numbers of the scales.
        """
        codes = self.constant(RANDOM.integers(0, 256, (rows, 16)).astype(np.uint8))
        lead = (32 // group,) if groups is None else groups
        numbers = RANDOM.uniform(0.1, 1, (*lead, rows + padding)).astype(np.float16 if halves else np.float32)
        scales = self.constant(numbers.astype(np.float32))
        return codes, scales, self.number(group)

    def linear(self, x: int, rows: int, bias: bool = False, **options: Any) -> int:
        out = self.tensor(*self.dims(x)[:-1], rows)
        added = self.constant(RANDOM.normal(size=rows + 3).astype(np.float32)) if bias else self.null()
        self.call(Q4, (x, *self.weight(rows, **options), added), out)
        return out

    def group_sums(self, x: int, group: int = 16, apart: bool = False) -> int:
        """Return the sums of each row's groups; or those of columns that lie `apart`."""
        rows, count = self.dims(x)[0], 32 // group
        dims = (rows, group, count) if apart else (rows, count, group)
        split, sums = self.tensor(*dims), self.tensor(rows, count)
        self.call("aten.view_copy.default", (x, self.add(IntList(dims))), split)
        axis = self.add(IntList((1 if apart else -1,)))
        self.call("aten.sum.dim_IntList", (split, axis, self.add(Bool(False)), self.null()), sums)
        return sums

    def offset_product(self, sums: int, rows: int, zero: int = 0, axis: int = 1) -> int:
        """Return the product of group sums with offsets in 8 bits."""
        groups = self.dims(sums)[1]
        codes = self.constant(RANDOM.integers(-128, 128, (groups, rows)).astype(np.int8))
        scales = self.constant(RANDOM.uniform(0.001, 0.01, (groups, rows)[axis]).astype(np.float32))
        zeros = self.constant(np.full((groups, rows)[axis], zero, np.int32))
        offsets, out = self.tensor(groups, rows), self.tensor(self.dims(sums)[0], rows)
        options = (self.number(axis), self.number(-128), self.number(127), self.number(1), self.null())
        self.call("quantized_decomposed.dequantize_per_channel.default", (codes, scales, zeros, *options), offsets)
        self.call("aten.mm.default", (sums, offsets), out)
        return out

    def with_offsets(self, x: int, rows: int, sums: int, bias: bool = False, **options: Any) -> int:
        """Return a layer whose groups have offsets."""
        return self.plus(self.linear(x, rows, bias), self.offset_product(sums, rows, **options))

    def int8(self, x: int, rows: int) -> int:
        out = self.tensor(*self.dims(x)[:-1], rows)
        weight = self.constant(RANDOM.integers(-128, 128, (rows, 32)).astype(np.int8))
        scales = self.constant(RANDOM.uniform(0.001, 0.01, rows).astype(np.float32))
        self.call(INT8, (x, weight, scales), out)
        return out

    def rounded(
        self,
        x: int,
        rows: int,
        limits: tuple[int, int] = (-128, 127),
        mapping: str = "ASYMMETRIC",
        eps: float | None = None,
        block: int = 32,
        halves: bool = False,
    ) -> int:
        """Return a layer whose input is rounded, with the call that chooses how."""
        lead = self.dims(x)[:-1]
        scale, zero = self.tensor(*lead), self.tensor(*lead, dtype=DType.INT8)
        blocks = self.add(IntList((*(1 for _ in lead), block)))
        options = [self.null() if eps is None else self.add(Double(eps)), self.null(), self.null()]
        kept = self.add(Bool(False))
        args = (x, self.add(String(mapping)), blocks, self.null(), *map(self.number, limits), *options, kept)
        self.call("torchao.choose_qparams_affine.default", args, scale, zero)
        out = self.tensor(*lead, rows)
        codes, scales, group = self.weight(rows, halves=halves)
        self.call(DQ8, (x, scale, zero, codes, self.null(), scales, group, self.null()), out)
        return out

    def binary(self, name: str, a: int, b: int, *more: int) -> int:
        out = self.tensor(*self.dims(a))
        self.call(f"aten.{name}.Tensor", (a, b, *more), out)
        return out

    def norm(self, x: int) -> int:
        out = self.tensor(*self.dims(x))
        weight = self.constant(RANDOM.normal(size=self.dims(x)[-1]).astype(np.float32))
        self.call("et_vk.rms_norm.default", (x, weight, self.add(Double(1e-2))), out)
        return out

    def plus(self, a: int, b: int, alpha: int = 1) -> int:
        return self.binary("add", a, b, self.number(alpha))

    def swiglu(self, gate: int, values: int, swapped: bool = False) -> int:
        sigmoid = self.unary(gate, *self.dims(gate), name="aten.sigmoid.default")
        silu = self.binary("mul", *((sigmoid, gate) if swapped else (gate, sigmoid)))
        return self.binary("mul", *((values, silu) if swapped else (silu, values)))

    def view(self, source: int, *size: int, dims: tuple[int, ...] = ()) -> int:
        out = self.tensor(*(dims or self.dims(source)))
        self.call("aten.view_copy.default", (source, self.list(*size)), out)
        return out

    def expand(self, source: int, *size: int, dims: tuple[int, ...] = ()) -> int:
        out = self.tensor(*(dims or self.dims(source)))
        self.call("aten.expand_copy.default", (source, self.list(*size), self.add(Bool(False))), out)
        return out

    def size(self, tensor: int, axis: int) -> int:
        out = self.symint()
        self.call("sym_size.int", (tensor, self.number(axis)), out)
        return out


def names(graph: Graph) -> list[str]:
    return [call.name.removeprefix("aten.").removeprefix("et_vk.").split(".")[0] for call in graph.calls]


def evaluate(graph: Graph, **inputs: np.ndarray) -> list[np.ndarray]:
    """The graph by the references of its ops. Inputs are named x0, x1, ... in their order."""
    live: dict[int, Any] = {v: inputs[f"x{n}"] for n, v in enumerate(graph.inputs)}

    def value(value_id: int) -> Any:
        match graph.values[value_id]:
            case TensorSpec(constant=Constant() as constant, dims=dims):
                return constant.array(dims)
            case Int(number) | Double(number) | Bool(number):
                return number
            case IntList(numbers):
                return list(numbers)
            case Null():
                return None
            case ValueList(ids):
                return [value(v) for v in ids]
            case String(text):
                return text
            case _:
                return live[value_id]

    for call in graph.calls:
        args = [value(a) for a in call.args]
        if call.name == "sym_size.int":
            results: Any = args[0].shape[args[1]]
        else:
            op = find(call)
            assert op is not None and op.compute is not None, call.name
            results = op.compute(*args)
        live.update(zip(call.outs, results if isinstance(results, tuple) else (results,), strict=True))
    return [live[v] for v in graph.outputs]


def check(graph: Graph, expected: list[str], passes: tuple[str, ...] = LINEARS) -> Graph:
    """Rewrite, compare the calls with what is expected, and the numbers with those of the graph as it was."""
    rewritten, saved = apply_passes(graph, passes)
    assert names(rewritten) == expected
    assert sum(saved.values()) == len(graph.steps) - len(rewritten.steps)
    arrays = {f"x{n}": RANDOM.normal(size=graph.tensor(v).dims).astype(np.float32) for n, v in enumerate(graph.inputs)}
    for before, after in zip(evaluate(graph, **arrays), evaluate(rewritten, **arrays), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4 + 1e-6 * np.abs(before).max())
    return rewritten


@pytest.fixture
def b() -> Builder:
    return Builder()


# -- layers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_one_input_are_joined_by_threes(b, count, bias):
    x = b.tensor(5, 32)
    outs = [b.linear(x, 4 + 4 * n, bias) for n in range(count)]
    alone = "linear_q4gsw"
    expected = {2: ["webpte"], 3: ["webpte"], 4: ["webpte", alone], 5: ["webpte", "webpte"]}
    after = check(b.graph([x], outs), expected[count])
    assert len(after.calls[0].outs) == min(count, 3)


def test_scales_with_room_to_spare_are_cut_to_size(b):
    x = b.tensor(5, 32)
    outs = [b.linear(x, 8, padding=4), b.linear(x, 12, padding=20)]
    after = check(b.graph([x], outs), ["webpte"])
    (codes,), (scales,) = (after.value_list(after.calls[0].args[i]) for i in (3, 4))
    assert (after.tensor(codes).dims, after.tensor(scales).dims) == ((20, 16), (2, 20))


def test_layers_that_differ_are_not_joined(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    outs = [b.linear(x, 8), b.linear(x, 8, group=32), b.linear(y, 8), b.linear(x, 8, bias=True)]
    check(b.graph([x, y], outs), ["linear_q4gsw"] * 4)


def test_join_linears_scales_of_another_rank_stay_apart(b):
    x = b.tensor(5, 32)
    outs = [b.linear(x, 8, group=32, groups=(1,)), b.linear(x, 8, group=32, groups=())]
    check(b.graph([x], outs), ["linear_q4gsw"] * 2)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("first", [False, True])
def test_join_linears_wrong_number_of_scale_groups_is_refused_by_the_lowering(b, groups, first):
    """Joined with a layer of two groups, the wrong scales would be cut to fit, or read past their end."""
    x = b.tensor(5, 32)
    leads = [(groups,), None] if first else [None, (groups,)]
    outs = [b.linear(x, 8, groups=lead) for lead in leads]
    graph = b.graph([x], outs)
    assert names(apply_passes(graph, LINEARS)[0]) == ["linear_q4gsw"] * 2
    with raises(ShapeError, [groups, 8], "groups of 16", code="operand_mismatch"):
        b.planner([x], outs)


def test_join_linears_shared_weight_is_not_copied(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    first, second = b.linear(x, 8), b.linear(x, 8)
    args = b.steps[0].args
    other = b.tensor(5, 8)
    b.call(Q4, (y, *args[1:]), other)
    check(b.graph([x, y], [first, second, other]), ["linear_q4gsw"] * 3)


def test_join_linears_respects_binding_limit(b, monkeypatch):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.linear(x, 8), b.linear(x, 8)])
    monkeypatch.setattr("webpte.fusion.linears.MAX_WEIGHT_BYTES", 255)  # the codes have 256 bytes
    check(graph, ["linear_q4gsw"] * 2)
    monkeypatch.setattr("webpte.fusion.linears.MAX_WEIGHT_BYTES", 256)
    check(graph, ["webpte"])


def test_8_bit_layers_are_fused_as_well(b):
    x, y, z, residual = b.tensor(5, 32), b.tensor(5, 32), b.tensor(5, 32), b.tensor(5, 8)
    outs = [b.int8(x, 8), b.int8(x, 12), b.swiglu(b.int8(y, 8), b.int8(y, 8)), b.plus(b.int8(z, 8), residual)]
    check(b.graph([x, y, z, residual], outs), ["webpte"] * 3)


def test_layers_of_4_and_of_8_bits_stay_apart(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    outs = [b.linear(x, 8), b.int8(x, 8), b.swiglu(b.int8(y, 8), b.linear(y, 8, group=32))]
    apart = ["linear_q4gsw", "_weight_int8pack_mm", "_weight_int8pack_mm", "webpte"]  # the last one takes the gate
    check(b.graph([x, y], outs), apart)


@pytest.mark.parametrize("swapped", [False, True])
def test_gated_linears_are_one_call(b, swapped):
    x = b.tensor(5, 32)
    check(b.graph([x], [b.swiglu(b.linear(x, 8), b.linear(x, 8), swapped)]), ["webpte"])


def test_silu_may_have_been_one_call(b):
    x = b.tensor(5, 32)
    gate, values = b.linear(x, 8), b.linear(x, 8)
    out = b.binary("mul", b.unary(gate, 5, 8, name="aten.silu.default"), values)
    check(b.graph([x], [out]), ["webpte"])


@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_gated_linears_gelu_is_fused(b, approximate):
    x = b.tensor(5, 32)
    gate, values, activated = b.linear(x, 8), b.linear(x, 8), b.tensor(5, 8)
    b.call("aten.gelu.default", (gate, b.add(String(approximate))), activated)
    check(b.graph([x], [b.binary("mul", activated, values)]), ["webpte"])


def test_gated_linears_gate_with_other_readers_stays(b):
    x = b.tensor(5, 32)
    gate, values = b.linear(x, 8), b.linear(x, 8)
    graph = b.graph([x], [b.swiglu(gate, values), gate])
    check(graph, ["linear_q4gsw", "linear_q4gsw", "webpte"], ("elementwise", "gated-linears"))
    check(graph, ["webpte", "webpte"])  # still two layers of one input


def test_gated_linears_gate_of_other_input_stays(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    out = b.swiglu(b.linear(x, 8), b.linear(y, 8))
    check(b.graph([x, y], [out]), ["linear_q4gsw", "webpte"])


def test_gated_linears_gate_of_itself_is_one_product(b):
    x = b.tensor(5, 32)
    gate = b.linear(x, 8)
    silu = b.unary(gate, 5, 8, name="aten.silu.default")
    after = check(b.graph([x], [b.binary("mul", silu, silu)]), ["webpte"])
    assert len(after.value_list(after.calls[0].args[CODES])) == 1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_residual_linear_adds_residual(b, bias, first):
    x, residual = b.tensor(5, 32), b.tensor(5, 8)
    out = b.linear(x, 8, bias)
    check(b.graph([x, residual], [b.plus(*((out, residual) if first else (residual, out)))]), ["webpte"])


def test_residual_linear_other_sums_stay(b):
    x, residual, row = b.tensor(5, 32), b.tensor(5, 8), b.tensor(1, 8)
    twice, shown, doubled = b.linear(x, 8), b.linear(x, 8, group=8), b.linear(x, 8, group=32)
    outs = [b.plus(residual, twice, 2), b.plus(shown, residual), shown, b.plus(doubled, doubled), b.plus(twice, row)]
    graph = b.graph([x, residual, row], outs)
    check(graph, ["linear_q4gsw"] * 3 + ["add"] * 4)


@pytest.mark.parametrize("alpha", [0, 2, -1])
@pytest.mark.parametrize("first", [False, True])
def test_epilogues_scaled_sum_is_fused(b, alpha, first):
    x, residual = b.tensor(5, 32), b.tensor(5, 8)
    out = b.linear(x, 8)
    scaled = b.plus(*((out, residual) if first else (residual, out)), alpha)
    check(b.graph([x, residual], [scaled]), ["webpte"])


def test_residual_linear_other_live_shape_stays(b):
    """Both have the bound (5, 8), but only one of them is sure to have the layer's rows."""
    x, other = b.tensor(5, 32, dynamic=True), b.tensor(5, 8, dynamic=True)
    graph = b.graph([x, other], [b.plus(b.linear(x, 8), other)])
    check(graph, ["linear_q4gsw", "add"])
    same = b.unary(b.linear(x, 8), 5, 8, name="aten.sigmoid.default")
    graph = b.graph([x, other], [b.plus(b.linear(x, 8), same)])
    check(graph, ["linear_q4gsw", "add", "webpte"])


@pytest.mark.parametrize("bias", [False, True])
def test_offset_linears_product_of_group_sums_is_one_call_with_the_layer(b, bias):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.with_offsets(x, 8, b.group_sums(x), bias=bias)])
    after = check(graph, ["webpte"])
    offsets = after.tensor(after.calls[0].args[OFFSETS])
    assert offsets.dims == (8 * 2 + 8 * 4,)  # codes of two groups, then scales


def test_offset_linears_join_gate_residual_and_norm_keep_their_offsets(b):
    source, residual = b.tensor(5, 32), b.tensor(5, 32)
    x, y = b.norm(source), b.norm(residual)
    sums, others = b.group_sums(x), b.group_sums(y)
    gated = b.swiglu(b.with_offsets(y, 32, others), b.with_offsets(y, 32, others))
    outs = [b.with_offsets(x, rows, sums) for rows in (8, 4, 12)]
    outs += [b.plus(source, b.with_offsets(gated, 32, b.group_sums(gated)))]
    after = check(b.graph([source, residual], outs), ["webpte"] * 3)
    assert all(isinstance(after.values[call.args[OFFSETS]], TensorSpec) for call in after.calls)


def test_offset_linears_norm_of_more_buffers_than_a_device_binds_stays(b):
    source = b.tensor(5, 32)
    x = b.norm(source)
    sums = b.group_sums(x)
    outs = [b.with_offsets(x, rows, sums, bias=True) for rows in (8, 4, 12)]
    check(b.graph([source], outs), ["rms_norm", "webpte"])


def test_offset_linears_layer_without_offsets_stays_apart(b):
    x = b.tensor(5, 32)
    outs = [b.with_offsets(x, 8, b.group_sums(x)), b.linear(x, 8)]
    check(b.graph([x], outs), ["webpte", "linear_q4gsw"])


@pytest.mark.parametrize("other", [{"group": 8}, {"apart": True}])
def test_offset_linears_other_sums_are_not_fused(b, other):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.with_offsets(x, 8, b.group_sums(x, **other))])
    check(graph, names(graph), ("offset-linears",))


@pytest.mark.parametrize("other", [{"zero": 3}, {"axis": 0}])
def test_offset_linears_other_offsets_are_not_fused(b, other):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.with_offsets(x, 8, b.group_sums(x), **other)])
    check(graph, names(graph), ("offset-linears",))


def test_offset_linears_columns_that_do_not_fill_words_are_not_fused(b):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.with_offsets(x, 6, b.group_sums(x))])
    check(graph, names(graph), ("offset-linears",))


def test_offset_linears_sums_of_another_tensor_are_not_fused(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    graph = b.graph([x, y], [b.with_offsets(x, 8, b.group_sums(y))])
    check(graph, names(graph), ("offset-linears",))


def test_offset_linears_sums_that_are_returned_stay(b):
    x = b.tensor(5, 32)
    sums = b.group_sums(x)
    check(b.graph([x], [b.with_offsets(x, 8, sums), sums]), ["view_copy", "sum", "webpte"])


def test_roundings_of_one_input_are_chosen_once(b):
    x = b.tensor(5, 32)
    outs = [b.rounded(x, 8), b.rounded(x, 4), b.rounded(x, 12)]
    graph = b.graph([x], outs)
    check(graph, ["torchao"] + ["linear_dq8ca_q4gsw"] * 3, ("qparams",))
    check(graph, ["webpte"])


@pytest.mark.parametrize("other", [{"limits": (-8, 7)}, {"mapping": "SYMMETRIC"}], ids=str)
def test_share_qparams_other_options_keep_their_call(b, other):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.rounded(x, 8), b.rounded(x, 4, **other), b.rounded(x, 12)])
    check(graph, ["torchao", "linear_dq8ca_q4gsw", "torchao"] + ["linear_dq8ca_q4gsw"] * 2, ("qparams",))
    check(graph, ["webpte", "torchao", "linear_dq8ca_q4gsw"])


def test_layers_with_different_roundings_are_not_joined(b):
    x = b.tensor(5, 32)
    graph = b.graph([x], [b.rounded(x, 8), b.rounded(x, 4)])
    check(graph, ["torchao", "linear_dq8ca_q4gsw"] * 2, ("joined-linears",))


# -- rows in int8 ------------------------------------------------------------------------------------------------------

ROWS = ("row-qparams",)


def test_row_qparams_layer_chooses_scales_of_its_rows(b):
    x, y = b.tensor(2, 5, 32), b.tensor(2, 5, 8)
    graph = b.graph([x, y], [b.plus(b.rounded(x, 8), y), b.rounded(x, 4)])
    check(graph, ["webpte", "add", "webpte"], ROWS)
    check(graph, ["webpte", "webpte"], ("epilogues", *ROWS))


@pytest.mark.parametrize("eps", [None, 0.25])
def test_row_qparams_smallest_scale_is_that_of_the_call(b, eps):
    x = b.tensor(5, 32)
    after = check(b.graph([x], [b.rounded(x, 8, eps=eps)]), ["webpte"], ROWS)
    smallest = float(np.finfo(np.float32).smallest_normal)
    assert after.values[after.calls[0].args[OFFSETS + 1]] == Double(smallest if eps is None else eps)


@pytest.mark.parametrize("other", [{"limits": (-8, 7)}, {"mapping": "SYMMETRIC"}, {"block": 16}], ids=str)
def test_row_qparams_other_options_keep_their_call(b, other):
    x = b.tensor(1, 32)
    graph = b.graph([x], [b.rounded(x, 8, **other)])
    if "block" in other:  # two scales, which no layer takes
        assert names(apply_passes(graph, ROWS)[0]) == ["torchao", "linear_dq8ca_q4gsw"]
    else:
        check(graph, ["torchao", "linear_dq8ca_q4gsw"], ROWS)


def test_row_qparams_scales_with_other_readers_keep_their_call(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    first, second = b.rounded(x, 8), b.rounded(y, 8)
    scale = b.steps[0].outs[0]
    graph = b.graph([x, y], [first, second, b.unary(scale, 5)])
    check(graph, ["torchao", "linear_dq8ca_q4gsw", "webpte", "relu"], ROWS)
    graph = b.graph([x, y], [first, second, scale])
    check(graph, ["torchao", "linear_dq8ca_q4gsw", "webpte", "relu"], ROWS)


def test_row_qparams_scales_of_another_input_keep_their_call(b):
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    out = b.rounded(x, 8)
    layer = b.steps[-1]
    b.steps[-1] = replace(layer, args=(y, *layer.args[1:]))
    check(b.graph([x, y], [out]), ["torchao", "linear_dq8ca_q4gsw"], ROWS)


def test_transformer_layer_fuses_into_few_calls(b):
    """Queries, keys and values; a projection with its residual; a gate; a projection with its residual."""
    x = b.tensor(5, 32)
    normed = b.norm(x)
    q, k, v = b.linear(normed, 32), b.linear(normed, 8), b.linear(normed, 8)
    after = b.plus(x, b.linear(b.unary(q, 5, 32, name="aten.silu.default"), 32))
    normed = b.norm(after)
    hidden = b.swiglu(b.linear(normed, 32), b.linear(normed, 32))
    out = b.plus(after, b.linear(hidden, 32))
    check(b.graph([x], [out, k, v]), ["webpte", "silu", "webpte", "webpte", "webpte"])


# -- scales in f16 -----------------------------------------------------------------------------------------------------


def scale_dtypes(graph: Graph) -> list[DType]:
    """Return the dtype of the scales of each layer."""
    positions = {Q4: 2, DQ8: 5, INT8: 2, FUSED: 4}
    layers = [call for call in graph.calls if call.name in positions]
    ids = [v for call in layers for v in graph.flatten([call.args[positions[call.name]]])]
    return [graph.tensor(v).dtype for v in ids]


@pytest.mark.parametrize("passes", [(), LINEARS])
def test_narrow_scales_only_where_no_bit_changes(b, passes):
    """A pair of layers, one of whose scales f16 does not have, keeps both in f32; so does a layer of 8 bits."""
    x, y, z, r = (b.tensor(5, 32) for _ in "xyzr")
    mixed = b.binary("mul", b.linear(y, 8), b.linear(y, 8, halves=True))
    outs = [b.linear(x, 8), b.int8(x, 8), mixed, b.linear(z, 8, halves=True, padding=4), b.rounded(r, 8, halves=True)]
    graph = apply_passes(b.graph([x, y, z, r], outs), passes)[0]
    after = narrow_scales(graph)
    single, half = DType.FLOAT32, DType.FLOAT16
    kept = [single, half] if not passes else [single, single]
    assert scale_dtypes(graph) == [single] * 6
    assert sorted(map(str, scale_dtypes(after))) == sorted(map(str, [*kept, single, single, half, half]))
    plan = make_planner(graph, Caps(features=frozenset({"shader-f16"})), ()).plan
    assert scale_dtypes(plan.graph) == scale_dtypes(after)
    assert scale_dtypes(make_planner(graph, Caps(), ()).plan.graph) == [single] * 6


@pytest.mark.parametrize(("factor", "dtype"), [(1.0, DType.FLOAT16), (2.0**-13, DType.FLOAT32)])
def test_narrow_scales_below_normal_numbers_of_f16_stay(b, factor, dtype):
    x, scales = b.tensor(5, 32), np.full((1, 8), 0.25 * factor, np.float32)
    layer = b.tensor(5, 8)
    codes = b.constant(RANDOM.integers(0, 256, (8, 16)).astype(np.uint8))
    b.call(Q4, (x, codes, b.constant(scales), b.number(32), b.null()), layer)
    assert np.array_equal(scales, scales.astype(np.float16))
    assert scale_dtypes(narrow_scales(b.graph([x], [layer]))) == [dtype]


# -- norms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [Builder.linear, Builder.int8])
def test_norm_fuses_into_its_only_layer(b, layer):
    x = b.tensor(5, 32)
    check(b.graph([x], [layer(b, b.norm(x), 8)]), ["webpte"])


@pytest.mark.parametrize("first", [False, True])
def test_norm_residual_is_added(b, first):
    x, residual = b.tensor(5, 32), b.tensor(5, 32)
    norm = b.norm(b.unary(x, 5, 32))
    check(b.graph([x, residual], [b.plus(*((norm, residual) if first else (residual, norm)))]), ["relu", "webpte"])


def test_norm_residual_of_other_shape_or_factor_stays(b):
    x, row, residual = b.tensor(5, 32), b.tensor(1, 32), b.tensor(5, 32)
    outs = [b.plus(b.norm(x), row), b.plus(residual, b.norm(x), 2)]
    check(b.graph([x, row, residual], outs), ["rms_norm", "add", "rms_norm", "add"])


def test_norm_with_other_readers_stays(b):
    x, y, z = b.tensor(5, 32), b.tensor(5, 32), b.tensor(5, 32)
    shown, read = b.norm(x), b.norm(y)
    outs = [b.linear(shown, 8), shown, b.linear(read, 8), b.unary(read, 5, 32), b.rounded(b.norm(z), 8, limits=(-8, 7))]
    expected = ["rms_norm", "rms_norm", "linear_q4gsw", "linear_q4gsw", "relu", "rms_norm", "torchao"]
    check(b.graph([x, y, z], outs), [*expected, "linear_dq8ca_q4gsw"])


def test_norm_before_a_layer_that_rounds_its_rows_is_fused(b):
    x = b.tensor(5, 32)
    check(b.graph([x], [b.rounded(b.norm(x), 8)]), ["webpte"])


def test_norm_whose_input_is_residual_stays(b):
    """The layer adds what the norm gives: its x is another tensor."""
    x, y = b.tensor(5, 32), b.tensor(5, 32)
    check(b.graph([x, y], [b.plus(b.linear(y, 32), b.norm(x))]), ["rms_norm", "webpte"])


# -- views -------------------------------------------------------------------------------------------------------------

VIEWS = ("identities",)


def test_view_of_same_live_shape_is_dropped(b):
    x = b.tensor(1, 7, 32, dynamic=True)
    size = b.size(x, 1)
    out = b.linear(x, 8)
    seen = b.view(out, b.number(1), size, b.number(8))
    check(b.graph([x], [b.unary(seen, 1, 7, 8)]), ["sym_size", "linear_q4gsw", "relu"], VIEWS)


def test_equal_bounds_do_not_make_a_view_an_identity(b):
    """x[s <= 4, 8].view(4, -1) is (4, 2 * s)."""
    x = b.tensor(4, 8, dynamic=True)
    seen = b.view(x, b.number(4), b.number(-1))
    graph = b.graph([x], [b.unary(seen, 4, 8)])
    assert names(apply_passes(graph, VIEWS)[0]) == ["view_copy", "relu"]


def test_view_sized_by_other_tensor_stays(b):
    x, y = b.tensor(1, 7, 32, dynamic=True), b.tensor(1, 7, 32, dynamic=True)
    seen = b.view(b.linear(x, 8), b.number(1), b.size(y, 1), b.number(8))
    graph = b.graph([x, y], [b.unary(seen, 1, 7, 8)])
    assert "view_copy" in names(apply_passes(graph, VIEWS)[0])


def test_static_views_clones_and_expansions_are_dropped_in_a_row(b):
    x = b.tensor(5, 8)
    seen = b.view(x, b.number(-1), b.number(8))
    seen = b.unary(seen, 5, 8, name="aten.alias_copy.default")
    seen = b.expand(seen, b.number(-1), b.number(8))
    check(b.graph([x], [b.unary(seen, 5, 8)]), ["relu"], VIEWS)


def test_view_changing_shape_stays(b):
    x, row = b.tensor(4, 8), b.tensor(1, 8)
    turned = b.view(x, b.number(8), b.number(4), dims=(8, 4))
    wide = b.expand(row, b.number(4), b.number(-1), dims=(4, 8))
    outs = [b.unary(turned, 8, 4), b.unary(wide, 4, 8)]
    check(b.graph([x, row], outs), ["view_copy", "expand_copy", "relu", "relu"], VIEWS)


def test_view_returned_by_method_stays(b):
    x = b.tensor(5, 8)
    seen = b.view(x, b.number(5), b.number(8))
    check(b.graph([x], [seen, b.unary(seen, 5, 8)]), ["view_copy", "relu"], VIEWS)


def test_members_of_lists_are_replaced(b):
    x = b.tensor(5, 8)
    seen = b.view(x, b.number(5), b.number(8))
    out = b.tensor(10, 8)
    b.call("aten.cat.default", (b.list(seen, x), b.number(0)), out)
    after = check(b.graph([x], [out]), ["cat"], VIEWS)
    assert after.value_list(after.calls[0].args[0]) == (x, x)


def test_copy_of_tensor_written_in_place_stays(b):
    """The clone is taken before the cache changes."""
    cache, value, out = b.tensor(1, 4, 2, 8), b.tensor(1, 1, 2, 8), b.tensor(1)
    kept = b.unary(cache, 1, 4, 2, 8, name="aten.alias_copy.default")
    b.call("update_cache.default", (value, cache, b.number(0)), out)
    graph = b.graph([cache, value], [b.unary(kept, 1, 4, 2, 8), out])
    assert names(apply_passes(graph, VIEWS)[0]) == ["alias_copy", "update_cache", "relu"]


def test_dtype_conversion_is_not_a_view(b):
    x = b.tensor(5, 8)
    narrow = b.tensor(5, 8, dtype=DType.FLOAT16)
    b.call("aten.clone.default", (x, b.null()), narrow)
    graph = b.graph([x], [b.unary(narrow, 5, 8)])
    assert names(apply_passes(graph, VIEWS)[0]) == ["clone", "relu"]


def test_live_dims_of_value_written_twice_are_unknown(b):
    x = b.tensor(5, 8)
    twice = b.tensor(5, 8)
    b.call("aten.relu.default", (x,), twice)
    b.call("aten.sigmoid.default", (x,), twice)
    dims = SymbolicDims(b.graph([x], [twice]))
    assert dims.same(x, x) and not dims.same(twice, twice)


def test_methods_with_jumps_are_left_alone(b):
    x, condition = b.tensor(5, 32), b.symint()
    outs = [b.linear(x, 8), b.linear(x, 8)]
    b.steps.append(Jump(condition, 2, Origin(2)))
    graph = b.graph([x, condition], outs)
    assert apply_passes(graph, tuple(PASSES))[0] == graph
