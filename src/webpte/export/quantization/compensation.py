"""Round weights for their inputs (GPTQ): later columns of a weight compensate the error of earlier ones.

The objective is the error of the layer's outputs over a text: E H E' for a weight error E, where H = X'X are the
moments of the inputs. Only codes and scales change; the format stays the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...builder.compensation import BLOCK_COLUMNS, DAMPING, SWEEPS
from ...builder.quantize import extremes
from .grid import QuantizedWeight, least_squares

if TYPE_CHECKING:
    import torch


def result_error(weight: torch.Tensor, codes: QuantizedWeight, moments: torch.Tensor) -> float:
    """Return the squared error of the layer's outputs, summed over rows and inputs."""
    wrong = weight - codes.values()
    return float(((wrong @ moments) * wrong).sum())


def compensated(weight: torch.Tensor, group: int, bits: int, moments: torch.Tensor) -> QuantizedWeight:
    """Return the codes of a weight (N, K) for inputs with moments (K, K); never worse than the nearest codes."""
    weight, damped = weight.detach().float(), _damped(moments)
    plain = least_squares(weight, group, bits, damped.diagonal())
    best = QuantizedWeight(_round_in_order(weight, plain.scales, bits, damped), plain.scales)
    for _ in range(SWEEPS):
        best = QuantizedWeight(best.codes, _refitted(weight, best, damped))
        best = QuantizedWeight(_descend(weight, best, bits, damped), best.scales)
    return min(plain, best, key=lambda codes: result_error(weight, codes, damped))


def _damped(moments: torch.Tensor) -> torch.Tensor:
    import torch

    mean = float(moments.diagonal().mean())
    return moments + torch.eye(len(moments)) * (DAMPING * mean if mean > 0 else 1.0)


def _round_in_order(weight: torch.Tensor, scales: torch.Tensor, bits: int, moments: torch.Tensor) -> torch.Tensor:
    """Round column by column, largest inputs first, and propagate each error to the columns not rounded yet."""
    import torch

    order = torch.argsort(moments.diagonal(), descending=True, stable=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments[order][:, order]))
    factor = torch.linalg.cholesky(inverse, upper=True)  # (K, K)
    remaining = weight[:, order].T.contiguous()  # (K, N): the weight plus the propagated errors
    steps = scales.repeat_interleave(weight.shape[1] // scales.shape[1], 1)[:, order].T.contiguous()
    codes = torch.empty_like(remaining)
    for first in range(0, len(remaining), BLOCK_COLUMNS):
        block = slice(first, first + BLOCK_COLUMNS)
        near, errors = factor[block, block], torch.empty_like(remaining[block])
        for i, row in enumerate(remaining[block]):
            code = (row / steps[first + i]).round_().clamp_(*extremes(bits))
            codes[first + i] = code
            errors[i] = (row - code * steps[first + i]) / near[i, i]
            remaining[first + i + 1 : first + len(near)].addr_(near[i, i + 1 :], errors[i], alpha=-1)
        remaining[first + BLOCK_COLUMNS :] -= factor[block, first + BLOCK_COLUMNS :].T @ errors
    result = torch.empty_like(codes)
    result[order] = codes
    return result.T.contiguous().to(torch.int8)


def _refitted(weight: torch.Tensor, current: QuantizedWeight, moments: torch.Tensor) -> torch.Tensor:
    """Return the scales of each row with the least error for these codes, by a small linear system per row."""
    import torch

    groups, group = current.scales.shape[1], current.group
    codes = current.codes.float().unflatten(1, (groups, group))  # (N, G, group)
    target = (codes * (weight @ moments).unflatten(1, (groups, group))).sum(-1)  # (N, G)
    system = torch.empty(len(weight), groups, groups)
    for g, rows in enumerate(moments.split(group)):
        system[:, g] = ((codes[:, g] @ rows).unflatten(1, (groups, group)) * codes).sum(-1)
    slack = system.diagonal(dim1=1, dim2=2).mean(1) * 1e-6 + 1e-20  # groups whose codes are all zero
    solved = torch.linalg.solve(system + torch.diag_embed(slack[:, None].expand(-1, groups)), target)
    used = (codes != 0).any(-1) & torch.isfinite(solved) & (solved != 0)
    return torch.where(used, solved, current.scales)


def _descend(weight: torch.Tensor, current: QuantizedWeight, bits: int, moments: torch.Tensor) -> torch.Tensor:
    """Replace every code by the best one given all others: the error falls with every change."""
    import torch

    steps = current.scales.repeat_interleave(current.group, 1).T.contiguous()  # (K, N)
    codes = current.codes.T.to(weight.dtype).contiguous()  # (K, N)
    pull = moments @ (weight.T - codes * steps)  # (K, N): the negative gradient of the error
    for first in range(0, len(codes), BLOCK_COLUMNS):
        block = slice(first, first + BLOCK_COLUMNS)
        near, changes = moments[block, block], torch.empty_like(codes[block])
        for i in range(len(near)):
            at = first + i
            code = (codes[at] + pull[at] / (near[i, i] * steps[at])).round_().clamp_(*extremes(bits))
            changes[i] = (codes[at] - code) * steps[at]
            codes[at] = code
            pull[at + 1 : first + len(near)].addr_(near[i, i + 1 :], changes[i])
        pull[first + BLOCK_COLUMNS :] += moments[first + BLOCK_COLUMNS :, block] @ changes
    return codes.T.contiguous().to(torch.int8)
