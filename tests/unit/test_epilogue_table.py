"""Each format of weights with each epilogue: one dispatch for one token, with the numbers of the separate calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.test_fusion_linears import RANDOM, Builder, check
from webpte.fusion import PASSES
from webpte.graph import Double, Graph, IntList, String
from webpte.plan import make_planner
from webpte.wgsl import Caps

GPU = Caps(features=frozenset({"subgroup"}), subgroup=32, kind="gpu")
ROWS = 8  # of weights


class TableBuilder(Builder):
    """Layers of one input in every format, so that two of them can be a gate and its values."""

    def floats(self, x: int) -> int:
        out = self.tensor(1, ROWS)
        weight = self.constant(RANDOM.normal(size=(ROWS, 32)).astype(np.float32))
        self.call("aten.linear.default", (x, weight, self.null()), out)
        return out

    def groups(self, x: int) -> int:
        return self.linear(x, ROWS)

    def rows_and_groups(self, x: int) -> int:
        return self.rounded(x, ROWS)

    def groups_with_offsets(self, x: int) -> int:
        return self.with_offsets(x, ROWS, self.group_sums(x))

    def channels(self, x: int) -> int:
        out = self.tensor(1, ROWS)
        codes, scales, _ = self.weight(ROWS, group=32, groups=())
        self.call("et_vk.linear_qcs4w.default", (x, codes, scales), out)
        return out

    def bytes(self, x: int) -> int:
        return self.int8(x, ROWS)

    def mxfp4(self, x: int) -> int:
        out, none = self.tensor(1, ROWS), self.null()
        codes = self.list(self.constant(RANDOM.integers(0, 256, (ROWS, 16)).astype(np.uint8)))
        scales = self.list(self.constant(RANDOM.integers(120, 124, (1, ROWS)).astype(np.uint8)))
        columns, name = self.add(IntList((ROWS,))), self.add(String("mxfp4"))
        weight = (codes, scales, self.number(32), columns, none, name)
        self.call("webpte.linear_q4", (x, none, none, *weight, *[none] * 8), out)
        return out

    def gelu(self, x: int, approximate: str = "none") -> int:
        out = self.tensor(1, ROWS)
        self.call("aten.gelu.default", (x, self.add(String(approximate))), out)
        return out

    def clamp(self, x: int) -> int:
        out = self.tensor(1, ROWS)
        self.call("aten.clamp.default", (x, self.add(Double(-1.0)), self.add(Double(6.0))), out)
        return out

    def apply(self, name: str, x: int) -> int:
        return self.unary(x, 1, ROWS, name=f"aten.{name}.default")

    def sigmoid_product(self, x: int) -> int:
        return self.binary("mul", x, self.apply("sigmoid", x))


Layer = Callable[[TableBuilder, int], int]
FORMATS: dict[str, Layer] = {
    "f32": TableBuilder.floats,
    "4 bits in groups": TableBuilder.groups,
    "4 bits in groups, rows in int8": TableBuilder.rows_and_groups,
    "4 bits in groups with offsets": TableBuilder.groups_with_offsets,
    "4 bits by channel": TableBuilder.channels,
    "int8 by channel": TableBuilder.bytes,
    "MXFP4": TableBuilder.mxfp4,
}
ACTIVATIONS: dict[str, Layer] = {
    "gelu": TableBuilder.gelu,
    "gelu tanh": lambda b, x: b.gelu(x, "tanh"),
    "silu": TableBuilder.sigmoid_product,
    "tanh": lambda b, x: b.apply("tanh", x),
    "clamp": TableBuilder.clamp,
}
Epilogue = Callable[[TableBuilder, int, int], int]


def without_residual(function: Layer) -> Epilogue:
    return lambda b, y, residual: function(b, y)


EPILOGUES: dict[str, Epilogue] = {
    **{name: without_residual(function) for name, function in ACTIVATIONS.items()},
    "residual": lambda b, y, residual: b.plus(residual, y),
    "scaled residual": lambda b, y, residual: b.plus(residual, y, 2),
    "gelu and residual": lambda b, y, residual: b.plus(b.gelu(y), residual),
}


def dispatches(graph: Graph) -> int:
    """Return the dispatches of a method for a GPU."""
    (schedule,) = make_planner(graph, GPU, ()).lower({})
    return len(schedule.dispatches)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("layer", FORMATS)
def test_epilogue_of_each_format_is_one_call(layer, epilogue):
    b = TableBuilder()
    x, residual = b.tensor(1, 32), b.tensor(1, ROWS)
    out = EPILOGUES[epilogue](b, FORMATS[layer](b, x), residual)
    after = check(b.graph([x, residual], [out]), ["webpte"], tuple(PASSES))
    rounding = layer == "4 bits in groups, rows in int8"  # the rows are rounded in a dispatch of their own
    assert dispatches(after) == 1 + rounding


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layer", FORMATS)
def test_gate_of_each_format_is_one_call(layer, activation):
    """Of two products of floats, the second takes the result of the first as an operand."""
    b = TableBuilder()
    x, residual = b.tensor(1, 32), b.tensor(1, ROWS)
    gate, values = FORMATS[layer](b, x), FORMATS[layer](b, x)
    out = b.plus(residual, b.binary("mul", ACTIVATIONS[activation](b, gate), values))
    expected = ["linear", "webpte"] if layer == "f32" else ["webpte"]
    after = check(b.graph([x, residual], [out]), expected, tuple(PASSES))
    assert dispatches(after) == len(expected) + (layer == "4 bits in groups, rows in int8")
