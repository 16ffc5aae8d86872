"""Quantised layers in the place of a module's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .grid import Codes

if TYPE_CHECKING:
    import torch


def quantised_linear(linear: torch.nn.Linear, codes: Codes, kind: str) -> torch.nn.Module:
    """The layer with these codes in the place of its weight: `kind` is "4w", "8da4w" or "8w"."""
    import torch
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quantize_.workflows.intx import intx_unpacked_to_int8_tensor as intx

    if kind == "8w":
        from ..modules.quantised import Linear8

        return Linear8(codes, linear.bias)
    by_token = intx.IntxUnpackedToInt8TensorActivationQuantization.INT8_ASYM_PER_TOKEN
    zeros = torch.zeros(codes.scales.shape, dtype=torch.int8)
    rounding = by_token if kind == "8da4w" else None
    block = (1, codes.group)
    weight = IntxUnpackedToInt8Tensor(codes.codes, codes.scales, zeros, torch.int4, block, torch.float32, rounding)
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    return linear


def stored_codes(weight: torch.Tensor, group: int, bits: int) -> Codes | None:
    """The codes and scales of a weight that torchao quantised, where it did so in the same way."""
    import torch
    from torchao.quantization import IntxUnpackedToInt8Tensor

    if not isinstance(weight, IntxUnpackedToInt8Tensor):
        return None
    same = weight.target_dtype == {4: torch.int4, 8: torch.int8}[bits] and tuple(weight.block_size) == (1, group)
    if not same or bool((weight.zero_point != 0).any()):
        return None
    return Codes(weight.qdata, weight.scale.float().reshape(len(weight.qdata), -1))


def quantised_embedding(codes: Codes, bits: int) -> torch.nn.Module:
    from ..modules.quantised import Embedding

    return Embedding(codes, bits)
