"""What the builders of `transformers` models share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..export.lowering import Inputs, Model, forward


class Outputs(nn.Module):
    """A model as a function of tensors: named inputs in order, some fields of its result in order."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.outputs = outputs

    def forward(self, first, second=None):
        # No *args here: the exporter takes those for one argument.
        result = self.model(**dict(zip(self.inputs, (first, second), strict=False)))
        return tuple(result[name] for name in self.outputs)


def lively(model: nn.Module) -> nn.Module:
    """Random weights that matter: fresh ones are so small that every layer is nearly the identity."""
    with torch.no_grad():
        for name, p in (*model.named_parameters(), *model.named_buffers()):
            if not p.is_floating_point() or "inv_freq" in name:
                continue
            if "running_var" in name:
                p.uniform_(0.5, 2)
            elif p.ndim >= 2:
                p.normal_(0, 1.3 / max(1, p[0].numel()) ** 0.5)
            else:  # a bias or a scale: stay near what it was
                p.add_(torch.randn_like(p) * 0.1)
    return model.eval()


def export_model(
    make: Any,
    config: Any,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    steps: list[Inputs],
    example: Inputs,
    dynamic_shapes: Any = None,
) -> Model:
    """`make(config)` with lively weights, as a function from `inputs` to `outputs`; attention in plain operators."""
    config._attn_implementation = "eager"
    module = Outputs(lively(make(config)), inputs, outputs)
    return forward(module, example, [steps], dynamic_shapes=dynamic_shapes, strict=False)
