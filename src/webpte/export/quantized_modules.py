"""Quantized layers in the form that ExecuTorch's exporter recognizes."""

from __future__ import annotations

import torch
from executorch.exir.passes import _quant_patterns_and_replacements  # noqa: F401 — registers embedding_byte and _4bit
from torch import Tensor, nn
from torch.nn import functional
from torchao.quantization import IntxUnpackedToInt8Tensor
from torchao.quantization.quantize_.workflows.intx import intx_unpacked_to_int8_tensor as intx

from ..builder.quantize import Grouped


def intx_weight(codes: Grouped, *, by_token: bool) -> Tensor:
    """Return torchao's tensor of a 4-bit weight. With `by_token`, inputs have 8 bits and a scale for each token."""
    values, scales = torch.from_numpy(codes.codes), torch.from_numpy(codes.scales)
    rounding = intx.IntxUnpackedToInt8TensorActivationQuantization.INT8_ASYM_PER_TOKEN if by_token else None
    zeros = torch.zeros(scales.shape, dtype=torch.int8)
    return IntxUnpackedToInt8Tensor(values, scales, zeros, torch.int4, (1, codes.group), torch.float32, rounding)


class Linear8(nn.Module):
    """A linear with int8 codes and one scale per output."""

    def __init__(self, codes: Grouped, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.register_buffer("codes", torch.from_numpy(codes.codes))
        self.register_buffer("scales", torch.from_numpy(codes.scales).flatten())
        self.register_buffer("zeros", torch.zeros(len(codes.codes), dtype=torch.int64))
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        # The exporter fuses these two into one op that reads the codes.
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.codes, self.scales, self.zeros, 0, -128, 127, torch.int8
        )
        return functional.linear(x, weight, self.bias)


class QuantizedEmbedding(nn.Module):
    """An embedding of codes; 4-bit codes are packed two in a byte, the first in the upper half."""

    def __init__(self, codes: Grouped, bits: int) -> None:
        super().__init__()
        table, scales = torch.from_numpy(codes.codes), torch.from_numpy(codes.scales)
        if bits == 4:
            pairs = (table + 8).to(torch.uint8).unflatten(1, (-1, 2))  # (V, E / 2, 2)
            table = pairs[..., 0] << 4 | pairs[..., 1]
        self.bits = bits
        self.register_buffer("codes", table)
        self.register_buffer("scales", scales if scales.shape[1] > 1 else scales.flatten())

    def forward(self, tokens: Tensor) -> Tensor:
        tables = (self.codes, self.scales, None)
        rows: Tensor
        if self.bits == 8:
            rows = torch.ops.quantized_decomposed.embedding_byte.dtype(*tables, -128, 127, tokens, dtype=torch.float32)
        else:
            rows = torch.ops.quantized_decomposed.embedding_4bit.dtype(*tables, -8, 7, tokens, dtype=torch.float32)
        return rows
