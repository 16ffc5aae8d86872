"""Names that the text of a program may use besides its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def stirred(layer: nn.Module) -> nn.Module:
    """A norm as after training: no weight is 1, no mean 0."""
    with torch.no_grad():
        for name, values in [*layer.named_parameters(), *layer.named_buffers()]:
            if values.dtype.is_floating_point:
                values.add_(torch.rand_like(values) if "var" in name else 0.3 * torch.randn_like(values))
    return layer


def quantized(linear: nn.Linear, bits: int, group: int) -> nn.Linear:
    """A linear whose weights are kept in 4 or 8 bits, with a scale for every group."""
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    dtype = {4: torch.int4, 8: torch.int8}[bits]
    quantize_(linear, IntxWeightOnlyConfig(weight_dtype=dtype, granularity=PerGroup(group) if group else PerAxis(0)))
    return linear


NAMES: dict[str, Any] = {"torch": torch, "nn": nn, "F": functional, "stirred": stirred, "quantized": quantized}
