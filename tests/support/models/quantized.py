"""Builders of programs with 4-bit and int8 weights and with torchao's affine ops, quantized by torchao and ExecuTorch.

Sizes are such as the exporter takes: outputs a multiple of 4, inputs of 4-bit layers as well.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Method, Model, forward

BOUND = 23
LENGTHS = (23, 11, 4, 2, 1, 23)


class Every(nn.Module):
    """One output per layer, all of the same input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return tuple(layer(x) for layer in self.layers)


class Two(nn.Module):
    """Two such modules, each with an input of its own."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, y):
        return *self.first(x), *self.second(y.unsqueeze(0))


def seq() -> dict[int, Dim]:
    return {0: Dim("seq", max=BOUND)}


def weight_only() -> Model:
    """Groups of every size that divides the inputs; outputs that are a multiple of 4 and not of 8; biases."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    def layer(inputs: int, outputs: int, group: int, bias: bool = False) -> nn.Module:
        linear = nn.Linear(inputs, outputs, bias=bias).eval()
        quantize_(linear, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(group)))
        return linear

    module = Two(
        Every(
            layer(256, 24, 16),
            layer(256, 20, 32, bias=True),
            layer(256, 4, 64),
            layer(256, 12, 128, bias=True),
            layer(256, 8, 256),
        ),
        Every(layer(36, 20, 12, bias=True), layer(36, 8, 4), layer(36, 4, 36)),
    )
    steps = [(torch.randn(n, 256), torch.randn(n, 36)) for n in LENGTHS]
    shapes = (seq(), seq())
    return forward(module, steps[1], [steps], dynamic_shapes=shapes, expect=("et_vk.linear_q4gsw.default",))


def awkward_rows(n: int, width: int, large: float) -> torch.Tensor:
    """Rows of usual size, then ones that are zero, of one sign, large, or almost nothing."""
    kinds = [
        lambda row: row,
        torch.zeros_like,
        torch.abs,
        lambda row: -row.abs(),
        lambda row: row * large,
        lambda row: row * 1e-20,
        lambda row: row * 1e-37,
        torch.ones_like,
    ]
    return torch.stack([kinds[i % len(kinds)](row) for i, row in enumerate(torch.randn(n, width))])


def rounded_inputs() -> Model:
    """Inputs rounded to int8 row by row: 8da4w."""
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_

    def layer(inputs: int, outputs: int, group: int, bias: bool = False) -> nn.Module:
        linear = nn.Linear(inputs, outputs, bias=bias).eval()
        config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(group))
        quantize_(linear, config)
        return linear

    module = Two(
        Every(layer(128, 24, 32), layer(128, 12, 64, bias=True), layer(128, 8, 128)),
        Every(layer(36, 20, 12, bias=True)),
    )
    steps = [(awkward_rows(n, 128, 10), awkward_rows(n, 36, 10)) for n in LENGTHS]
    expect = ("torchao.choose_qparams_affine.default", "et_vk.linear_dq8ca_q4gsw.default")
    return forward(module, steps[1], [steps], dynamic_shapes=(seq(), seq()), expect=expect)


def channels(bits: int = 4) -> Model:
    """A scale per output, as VulkanQuantizer makes them from a traced module; biases are added after it."""
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import VulkanQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    linears = [nn.Linear(36, 16, bias=False), nn.Linear(36, 13), nn.Linear(36, 1)]
    steps = [(torch.randn(n, 36),) for n in LENGTHS]
    quantizer = VulkanQuantizer().set_global(get_symmetric_quantization_config(is_dynamic=False, weight_bits=bits))
    traced = torch.export.export(Every(*linears).eval(), steps[1], dynamic_shapes=(seq(),), strict=True)
    prepared = prepare_pt2e(traced.module(), quantizer)
    prepared(*steps[0])
    # Not through forward(): what torchao returns refuses eval().
    method = Method(convert_pt2e(prepared), steps[1], [steps], dynamic_shapes=(seq(),))
    expect = {4: "et_vk.linear_qcs4w.default", 8: "aten._weight_int8pack_mm.default"}[bits]
    return Model({"forward": method}, expect=(expect,))


class Table(nn.Module):
    """ExecuTorch's transformation looks for this name."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(rows, width)

    def forward(self, tokens):
        return self.tok_embeddings(tokens)


def embeddings() -> Model:
    """Tables that become embedding_q4gsw, and ones whose width is not a multiple of 32, which do not."""
    from executorch.examples.models.llama.source_transformation.quantize import get_quant_embedding_transform

    def table(width: int, group: int) -> nn.Module:
        return get_quant_embedding_transform(f"4,{group}", False)(Table(37, width))

    module = Every(table(64, 32), table(96, 16), table(24, 8), table(20, 4), table(6, 6))
    steps = [(torch.randint(0, 37, (1, n)),) for n in LENGTHS]
    shapes = ({1: Dim("seq", max=BOUND)},)
    expect = ("et_vk.embedding_q4gsw.default", "quantized_decomposed.embedding_4bit.dtype")
    return forward(module, steps[1], [steps], dynamic_shapes=shapes, expect=expect)


class Affine(nn.Module):
    """Scales and zeros for each row, codes of rows, channels and groups, and numbers made of codes.

    Codes are outputs or inputs: the exporter takes a pair of quantize and dequantize for nothing at all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(12) * 0.05 + 0.01)
        self.register_buffer("zero", torch.randint(-9, 9, (12,), dtype=torch.int32))
        self.register_buffer("bytes", torch.randint(-128, 127, (12,), dtype=torch.int8))

    def forward(self, x, codes):
        # x (S, 12), codes (S, 12) int8
        ops = torch.ops.torchao
        scale, zero = ops.choose_qparams_affine(
            x, "ASYMMETRIC", [1, 12], torch.int8, -128, 127, None, torch.float32, torch.int8
        )
        symmetric, _ = ops.choose_qparams_affine(x, "SYMMETRIC", [1, 12], torch.int8, -127, 127, 1e-5)
        groups, shift = ops.choose_qparams_affine(
            x, "SYMMETRIC_NO_CLIPPING_ERR", [1, 4], torch.int8, -8, 7, None, None, torch.int32
        )
        rows = x.shape[0]
        return (
            scale,
            zero,
            symmetric,
            groups,
            shift,
            ops.quantize_affine(x, [1, 12], scale, zero, torch.int8, -128, 127),
            ops.quantize_affine(x, [rows, 1], self.scale, self.zero, torch.int8, -128, 127),
            ops.quantize_affine(x, [1, 4], groups, shift, torch.int8, -8, 7),
            ops.dequantize_affine(codes, [1, 12], scale, zero, torch.int8, -128, 127),
            ops.dequantize_affine(codes, [rows, 1], self.scale, self.bytes, torch.int8, -128, 127),
            ops.dequantize_affine(codes, [1, 4], groups, None, torch.int8, -8, 7),
        )


def affine() -> Model:
    steps = [(awkward_rows(n, 12, 1e30), torch.randint(-128, 127, (n, 12), dtype=torch.int8)) for n in LENGTHS]
    names = ("choose_qparams_affine", "quantize_affine", "dequantize_affine")
    expect = tuple(f"torchao.{name}.default" for name in names)
    return forward(Affine(), steps[1], [steps], dynamic_shapes=(seq(), seq()), expect=expect)
