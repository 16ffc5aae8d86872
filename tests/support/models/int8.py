"""Builders of int8 programs: quantized statically with PT2E, as ExecuTorch's tutorials do it for XNNPACK and Vulkan.

Eager is the converted module: integers rounded and clamped as on a device, arithmetic between them in float32.
The exporter keeps ops it cannot resize out of dynamic delegates, these among them, though here they resize: the option
`require_dynamic_shapes` is off.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Method, Model, forward


def quantized(
    module: nn.Module, steps: list[Inputs], dynamic_shapes: Any, float_outputs: bool = False, **more: Any
) -> Model:
    """A Model of the module after calibration with `steps`, from which goldens are made too."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=False)
    if float_outputs:
        config = dataclasses.replace(config, output_activation=None)
    example = steps[0]
    traced = torch.export.export(module.eval(), example, dynamic_shapes=dynamic_shapes).module()
    prepared = prepare_pt2e(traced, XNNPACKQuantizer().set_global(config))
    for inputs in steps:
        prepared(*inputs)
    method = Method(convert_pt2e(prepared), example, [steps], dynamic_shapes=dynamic_shapes)
    return Model({"forward": method}, options={"require_dynamic_shapes": False}, **more)


class Bottleneck(nn.Module):
    """Expand, filter each channel, project, add: the block of MobileNetV2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 3 * channels
        self.expand = nn.Conv2d(channels, wide, 1)
        self.filters = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, 1, bias=False)

    def forward(self, x):
        wide = torch.relu(self.filters(torch.relu(self.expand(x))))
        return x + self.project(wide)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Bottleneck(8), Bottleneck(8))
        self.grouped = nn.Conv2d(8, 16, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1)
        self.side = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.blocks(torch.relu(self.stem(x)))  # (B, 8, H / 2, W / 2)
        grouped = torch.relu(self.grouped(x))
        scores = self.head(nn.functional.adaptive_avg_pool2d(grouped, 1).flatten(1))
        pooled = torch.relu(nn.functional.max_pool2d(self.side(x), 3, stride=1, padding=1))
        return scores, self.up(x), torch.relu(x + self.side(pooled))


def network(images: tuple[tuple[int, int, int], ...] = ((2, 17, 22), (3, 23, 29), (1, 9, 8), (2, 23, 5))) -> Model:
    """A small vision network; batch, height and width are dynamic."""
    steps = [(torch.randn(b, 3, h, w),) for b, h, w in images]
    batch, height, width = Dim("batch", max=3), Dim("height", min=4, max=23), Dim("width", min=4, max=29)
    names = ("q8ta_conv2d", "q8ta_conv2d_pw", "q8ta_conv2d_dw", "q8ta_conv2d_transposed", "q8ta_add", "q8ta_linear")
    expect = tuple(f"et_vk.{name}.default" for name in (*names, "q8ta_relu"))
    return quantized(Network(), steps, ({0: batch, 2: height, 3: width},), expect=expect)


class Block(nn.Module):
    """A transformer block; attention and norms are float."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.last_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size, bias=False)

    def forward(self, x):
        batch, length, size = x.shape
        normed = self.norm(x)
        split = (batch, length, self.heads, size // self.heads)
        q, k, v = (layer(normed).view(split).transpose(1, 2) for layer in (self.query, self.key, self.value))
        attended = nn.functional.scaled_dot_product_attention(q, k, v)  # (B, H, T, D)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.relu(self.up(self.last_norm(x))))


class Transformer(nn.Module):
    def __init__(self, size: int = 24) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(size, 4), Block(size, 4))
        self.head = nn.Linear(size, 35)

    def forward(self, x):
        return self.head(self.blocks(x))


def transformer(bound: int = 29, lengths: tuple[int, ...] = (13, 29, 7, 1, 28)) -> Model:
    steps = [(torch.randn(1, n, 24),) for n in lengths]
    expect = ("et_vk.q8ta_linear.default", "et_vk.q8ta_add.default")
    return quantized(Transformer(), steps, ({1: Dim("length", max=bound)},), expect=expect)


class Every(nn.Module):
    """One output per layer, all of the same input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return tuple(layer(x) for layer in self.layers)


def layers(images: tuple[tuple[int, int], ...] = ((9, 14), (13, 17), (7, 7), (8, 5))) -> Model:
    """Every kind of convolution the exporter fuses, each on its own; height and width are dynamic.

    Groups must have a multiple of 4 channels, or just one: others it leaves to float convolutions.
    """
    every = Every(
        nn.Conv2d(8, 5, 3, padding=1),
        nn.Conv2d(8, 7, (3, 5), stride=(2, 3), padding=(0, 4), dilation=(2, 1), bias=False),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU()),
        nn.Conv2d(8, 8, (5, 3), stride=2, padding=2, groups=8, bias=False),
        nn.Conv2d(8, 32, (3, 2), groups=8),
        nn.Conv2d(8, 24, 3, padding=1, groups=2),
        nn.Conv2d(8, 6, 1),
        nn.Sequential(nn.Conv2d(8, 8, 1, groups=2), nn.ReLU()),
        nn.Conv2d(8, 4, 1, stride=2, bias=False),
        nn.ConvTranspose2d(8, 5, 3),
        nn.ConvTranspose2d(8, 7, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), bias=False),
    )
    steps = [(torch.randn(1, 8, h, w),) for h, w in images]
    shapes = ({2: Dim("height", min=7, max=13), 3: Dim("width", min=5, max=17)},)
    return quantized(every, steps, shapes, expect=("et_vk.q8ta_conv2d_transposed.default",))


def float_heads(bound: int = 19, lengths: tuple[int, ...] = (11, 19, 4, 1)) -> Model:
    """Linear layers whose results stay float: only their inputs are quantized."""
    every = Every(nn.Linear(20, 12), nn.Linear(20, 16))  # others the exporter mistypes or fails on
    steps = [(torch.randn(n, 20),) for n in lengths]
    shapes = ({0: Dim("rows", max=bound)},)
    return quantized(every, steps, shapes, float_outputs=True, expect=("et_vk.linear_q8ta_q8csw.default",))


class Codes(nn.Module):
    """Each op by which codes are made and read, called by name."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", torch.rand(5) / 10 + 0.01)
        self.register_buffer("zeros", torch.randint(-20, 20, (5,)))
        self.register_buffer("scale", torch.tensor([0.0173]))
        self.register_buffer("zero", torch.tensor([-7]))

    def forward(self, x, signed, unsigned):
        # All are (S, 5), the last two int8 and uint8.
        ops, i8, u8 = torch.ops.quantized_decomposed, torch.int8, torch.uint8
        scale, zero = ops.choose_qparams(x, -128, 127, 1e-5, i8)
        scales, zeros = ops.choose_qparams_per_token_asymmetric(x, i8)
        return (
            ops.quantize_per_tensor(x, 0.0173, 11, -128, 127, i8),
            ops.quantize_per_tensor(x, 0.0173, 128, 0, 255, u8),
            ops.quantize_per_tensor.tensor(x, self.scale, self.zero, -128, 127, i8),
            ops.dequantize_per_tensor(signed, 0.0173, 11, -128, 127, i8),
            ops.dequantize_per_tensor(unsigned, 0.0173, 128, 0, 255, u8),
            ops.dequantize_per_tensor.tensor(signed, self.scale, self.zero, -128, 127, i8, out_dtype=torch.float32),
            ops.quantize_per_channel(x, self.scales, self.zeros, 1, -127, 127, i8),
            ops.dequantize_per_channel(signed, self.scales, self.zeros, 1, -128, 127, i8),
            scale,
            zero,
            scales,
            zeros,
            ops.quantize_per_token(x, scales, zeros, -128, 127, i8),
            ops.dequantize_per_token(signed, scales, zeros, -128, 127, i8, torch.float32),
        )


def codes(bound: int = 23, lengths: tuple[int, ...] = (23, 10, 3, 1)) -> Model:
    import executorch.kernels.quantized  # noqa: F401  (declares the ops' out-variants)
    import torch.ao.quantization.fx._decomposed

    def step(length: int) -> Inputs:
        signed = torch.randint(-128, 128, (length, 5), dtype=torch.int8)
        unsigned = torch.randint(0, 256, (length, 5), dtype=torch.uint8)
        return torch.randn(length, 5), signed, unsigned

    rows = {0: Dim("rows", max=bound)}
    return forward(Codes(), step(7), [[step(n) for n in lengths]], dynamic_shapes=(rows, rows, rows))
