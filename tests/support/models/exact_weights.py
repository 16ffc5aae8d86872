"""Weights that every format of a program holds exactly, so that one reference serves all of them.

A row has a step, and each group of its columns that step or 16 times it. Values are -7 to 7 times the step of their
group: 4 bits for the group, and 8 bits for the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

GROUP = 32  # columns
LARGEST = 7  # of a code
WIDER = 16  # every second group, so that codes of 8 bits reach 112: they are found from 127 down
SPREAD = 2.5  # standard deviations that the codes of those cover


def make_exact(model: Any, group: int = GROUP) -> Any:
    """Round the matrices of a model of transformers in place, along their inputs, and return the model."""
    import torch

    columns_first = model.config.model_type == "gpt_oss"  # of experts
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.copy_(exact(weight, group))
            elif weight.ndim == 3:  # all experts of a layer, or a convolution, whose rows are short
                weight.copy_(exact(weight.mT, group).mT if columns_first else exact(weight, group))
    return model


def exact(weight: torch.Tensor, group: int = GROUP) -> torch.Tensor:
    """Return weights (..., N, K) that are near, each a code times a step."""
    import torch

    count = weight.shape[-1]
    size = group if count % group == 0 else count
    groups = weight.unflatten(-1, (-1, size))  # (..., N, G, group)
    deviation = weight.pow(2).mean(-1, keepdim=True).sqrt().clamp(min=1e-6)
    step = torch.exp2(torch.round(torch.log2(deviation * SPREAD / LARGEST / WIDER) * 4) / 4).half().float()
    numbers = torch.arange(groups.shape[-2]) + torch.arange(weight.shape[-2])[:, None]
    steps = (step * torch.where(numbers % 2 == 1, WIDER, 1))[..., None]  # (..., N, G, 1)
    codes = torch.round(groups / steps).clamp(-LARGEST, LARGEST)
    largest = groups.abs().argmax(-1, keepdim=True)  # has the largest code: the builder finds the step at once
    codes.scatter_(-1, largest, LARGEST * groups.gather(-1, largest).sign())
    return (codes * steps).flatten(-2)
