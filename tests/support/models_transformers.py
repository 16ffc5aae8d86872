"""What the builders of `transformers` models share."""

from __future__ import annotations

import torch
from torch import nn


class Outputs(nn.Module):
    """A model as a function of tensors: named inputs in order, some fields of its result in order."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model.eval()
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
