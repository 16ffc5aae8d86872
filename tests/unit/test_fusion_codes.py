"""Passes over int8 codes: the calls that they rewrite or keep; the codes stay equal."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder
from tests.unit.test_fusion_linears import evaluate
from webpte.fusion import apply_passes
from webpte.graph import Bool, Double, DType, Graph, IntList

RESIDUALS, PERMUTED = ("epilogues",), ("permuted-codes",)
ADD, CONVOLUTION, LINEAR = "webpte.int8_add", "webpte.int8_convolution", "webpte.int8_linear"
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
PERMUTE = "aten.permute_copy.default"
RANDOM = np.random.default_rng(3)


class Builder(GraphBuilder):
    """Graphs over images (1, 5, 3, 8) of codes."""

    def image(self, *dims: int) -> int:
        return self.tensor(*(dims or (1, 5, 3, 8)), dtype=DType.INT8)

    def numbers(self, *values: int) -> list[int]:
        return [self.number(value) for value in values]

    def layer(self, x: int, depthwise: bool = False, rows: bool = False, channels: int = 8, padding: int = 1) -> int:
        """Return a convolution of 3 x 3, or a linear layer if `rows`."""
        shape = (9, 8) if depthwise else (2, channels, 4) if rows else (18, channels, 4)
        constants = (
            self.constant(RANDOM.integers(-128, 128, shape).astype(np.int8)),
            self.constant(RANDOM.uniform(1e-4, 1e-3, channels).astype(np.float32)),
            self.constant(RANDOM.integers(-999, 999, channels).astype(np.int32)),
        )
        window = (
            [] if rows else [self.add(IntList(sizes)) for sizes in ((3, 3), (1, 1), (padding,) * 4, (1, 1), (0, 0))]
        )
        if not rows:
            window += [self.add(Bool(False)), self.number(8 if depthwise else 1)]
        out = self.image(1, 5, 3, channels)
        self.call(LINEAR if rows else CONVOLUTION, (x, *constants, *self.numbers(9, -4, -100, 90), *window), out)
        return out

    def sum(self, a: int, b: int) -> int:
        out = self.image()
        self.call(ADD, (a, b, *self.numbers(700001, -1310719, 3 << 19, 21, 7, -128, 127)), out)
        return out

    def quantize(self, x: int, *dims: int, back: bool = False) -> int:
        """Codes of floats, or floats of codes if `back`."""
        out = self.tensor(*dims, dtype=DType.FLOAT32 if back else DType.INT8)
        rest = [self.null(), self.null()] if back else [self.number(1)]  # the code of int8
        args = (x, self.add(Double(0.5)), *self.numbers(3, -128, 127), *rest)
        self.call(DEQUANTIZE if back else QUANTIZE, args, out)
        return out

    def permute(self, x: int, order: tuple[int, ...], *dims: int, dtype: DType = DType.INT8) -> int:
        out = self.tensor(*dims, dtype=dtype)
        self.call(PERMUTE, (x, self.add(IntList(order))), out)
        return out


@pytest.fixture
def b() -> Builder:
    return Builder()


def check(graph: Graph, expected: list[str], passes: tuple[str, ...] = RESIDUALS) -> Graph:
    """Rewrite, compare the calls with what is expected, and the codes with those of the graph as it was."""
    rewritten, _ = apply_passes(graph, passes)
    assert [call.name.removeprefix("webpte.int8_") for call in rewritten.calls] == expected
    inputs = {f"x{n}": graph.tensor(v) for n, v in enumerate(graph.inputs)}
    arrays = {n: RANDOM.integers(-128, 128, spec.dims).astype(spec.dtype.numpy) for n, spec in inputs.items()}
    for before, after in zip(evaluate(graph, **arrays), evaluate(rewritten, **arrays), strict=True):
        np.testing.assert_array_equal(after, before)
    return rewritten


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_int8_residuals_sum_is_fused_into_the_layer_before_it(b, rows, swapped):
    x, y = b.image(), b.image()
    own = b.layer(x, rows=rows)
    total = b.sum(y, own) if swapped else b.sum(own, y)
    check(b.graph([x, y], [total]), ["linear" if rows else "convolution"])


def test_int8_residuals_one_of_two_layers_has_the_sum(b):
    x = b.image()
    first, second = b.layer(x), b.layer(x, rows=True)
    check(b.graph([x], [b.sum(first, second)]), ["convolution", "linear"])


def test_int8_residuals_chain_keeps_every_sum(b):
    x = b.image()
    hidden = b.sum(x, b.layer(x))
    check(b.graph([x], [b.sum(hidden, b.layer(hidden))]), ["convolution"] * 2)


@pytest.mark.parametrize("padding", [1, 0])
def test_int8_residuals_dynamic_image_keeps_its_size(b, padding):
    """Sizes vary between calls. A convolution of 3 x 3 keeps them if it pads."""
    x = b.tensor(2, 5, 3, 8, dtype=DType.INT8, dynamic=True)
    hidden = b.layer(x, rows=True)
    graph = b.graph([x], [b.sum(hidden, b.layer(hidden, padding=padding))])
    names = [call.name for call in apply_passes(graph, RESIDUALS)[0].calls]
    assert names == ([LINEAR, CONVOLUTION] if padding else [LINEAR, CONVOLUTION, ADD])


def test_int8_residuals_sum_is_fused_into_a_layer_for_each_channel(b):
    x = b.image()
    check(b.graph([x], [b.sum(x, b.layer(x, depthwise=True))]), ["convolution"])


def test_int8_residuals_layer_takes_one_sum(b):
    x, y, z = b.image(), b.image(), b.image()
    check(b.graph([x, y, z], [b.sum(z, b.sum(b.layer(x), y))]), ["convolution", "add"])


def test_int8_residuals_layer_with_other_readers_stays(b):
    x, y = b.image(), b.image()
    shown, twice = b.layer(x), b.layer(y)
    graph = b.graph([x, y], [b.sum(shown, y), shown, b.sum(twice, twice)])
    check(graph, ["convolution", "convolution", "add", "add"])


def test_int8_residuals_operand_of_another_shape_stays(b):
    x, y, z = b.image(), b.image(8), b.image()
    graph = b.graph([x, y, z], [b.sum(b.layer(x), y), b.sum(b.layer(x, channels=1), z)])
    check(graph, ["convolution", "add"] * 2)


# -- permutations ------------------------------------------------------------------------------------------------------


def test_permuted_codes_permutation_is_fused_into_the_quantization_before_it(b):
    x = b.tensor(2, 3, 5, 7)
    out = b.permute(b.quantize(x, 2, 3, 5, 7), (0, 2, 3, 1), 2, 5, 7, 3)
    check(b.graph([x], [out]), ["webpte.permuted_quantize"], PERMUTED)


def test_permuted_codes_permutation_is_fused_into_the_dequantization_before_it(b):
    x = b.image(2, 5, 7, 3)
    floats = b.quantize(x, 2, 5, 7, 3, back=True)
    out = b.permute(floats, (0, 3, 1, 2), 2, 3, 5, 7, dtype=DType.FLOAT32)
    check(b.graph([x], [out]), ["webpte.permuted_dequantize"], PERMUTED)


def test_permuted_codes_quantization_with_other_readers_stays(b):
    x, y = b.tensor(3, 5), b.tensor(3, 5)
    shown, twice = b.quantize(x, 3, 5), b.quantize(y, 3, 5)
    outs = [b.permute(shown, (1, 0), 5, 3), shown, b.permute(twice, (1, 0), 5, 3), b.permute(twice, (0, 1), 3, 5)]
    check(b.graph([x, y], outs), [QUANTIZE, QUANTIZE, PERMUTE, PERMUTE, PERMUTE], PERMUTED)


def test_permuted_codes_permutation_of_other_results_stays(b):
    x = b.tensor(3, 5, dtype=DType.INT8)
    check(b.graph([x], [b.permute(x, (1, 0), 5, 3)]), [PERMUTE], PERMUTED)
