"""Rounding that knows its inputs: what one column of a weight is wrong by, the columns after it make up for.

The error that counts is that of the layer's results over a text: E H E' for a weight that is wrong by E, where H = X'X
sums up the inputs. QuantizedWeight and scales change, and nothing is stored that was not stored before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .grid import QuantizedWeight, extremes, least_squares

if TYPE_CHECKING:
    import torch

DAMPING = 0.01  # of the mean of H's diagonal: so much is every input taken to vary beyond what the text shows
BLOCK = 32  # columns between which errors are handed on one by one, and beyond which together
SWEEPS = 1  # times that scales and codes are looked at again


def result_error(weight: torch.Tensor, codes: QuantizedWeight, moments: torch.Tensor) -> float:
    """The squared error of the layer's results, summed over rows and inputs."""
    wrong = weight - codes.values()
    return float(((wrong @ moments) * wrong).sum())


def compensated(weight: torch.Tensor, group: int, bits: int, moments: torch.Tensor) -> QuantizedWeight:
    """Codes of a weight (N, K) for inputs with these moments (K, K); never worse for them than the nearest codes."""
    weight, damped = weight.detach().float(), _damped(moments)
    plain = least_squares(weight, group, bits, damped.diagonal())
    found = QuantizedWeight(_round_in_order(weight, plain.scales, bits, damped), plain.scales)
    for _ in range(SWEEPS):
        found = QuantizedWeight(found.codes, _refitted(weight, found, damped))
        found = QuantizedWeight(_descend(weight, found, bits, damped), found.scales)
    return min(plain, found, key=lambda codes: result_error(weight, codes, damped))


def _damped(moments: torch.Tensor) -> torch.Tensor:
    import torch

    mean = float(moments.diagonal().mean())
    return moments + torch.eye(len(moments)) * (DAMPING * mean if mean > 0 else 1.0)


def _round_in_order(weight: torch.Tensor, scales: torch.Tensor, bits: int, moments: torch.Tensor) -> torch.Tensor:
    """Column by column, those with the largest inputs first: the error of each goes into those not rounded yet."""
    import torch

    order = torch.argsort(moments.diagonal(), descending=True, stable=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(moments[order][:, order]))
    factor = torch.linalg.cholesky(inverse, upper=True)  # (K, K)
    left = weight[:, order].T.contiguous()  # (K, N): what each column should make up for by now
    steps = scales.repeat_interleave(weight.shape[1] // scales.shape[1], 1)[:, order].T.contiguous()
    codes = torch.empty_like(left)
    for first in range(0, len(left), BLOCK):
        block = slice(first, first + BLOCK)
        near, errors = factor[block, block], torch.empty_like(left[block])
        for i, row in enumerate(left[block]):
            code = (row / steps[first + i]).round_().clamp_(*extremes(bits))
            codes[first + i] = code
            errors[i] = (row - code * steps[first + i]) / near[i, i]
            left[first + i + 1 : first + len(near)].addr_(near[i, i + 1 :], errors[i], alpha=-1)
        left[first + BLOCK :] -= factor[block, first + BLOCK :].T @ errors
    result = torch.empty_like(codes)
    result[order] = codes
    return result.T.contiguous().to(torch.int8)


def _refitted(weight: torch.Tensor, found: QuantizedWeight, moments: torch.Tensor) -> torch.Tensor:
    """The scales of each row that give the least error with these codes: a small linear system a row."""
    import torch

    groups, group = found.scales.shape[1], found.group
    codes = found.codes.float().unflatten(1, (groups, group))  # (N, G, group)
    wanted = (codes * (weight @ moments).unflatten(1, (groups, group))).sum(-1)  # (N, G)
    system = torch.empty(len(weight), groups, groups)
    for g, rows in enumerate(moments.split(group)):
        system[:, g] = ((codes[:, g] @ rows).unflatten(1, (groups, group)) * codes).sum(-1)
    slack = system.diagonal(dim1=1, dim2=2).mean(1) * 1e-6 + 1e-20  # groups whose codes are all zero
    solved = torch.linalg.solve(system + torch.diag_embed(slack[:, None].expand(-1, groups)), wanted)
    used = (codes != 0).any(-1) & torch.isfinite(solved) & (solved != 0)
    return torch.where(used, solved, found.scales)


def _descend(weight: torch.Tensor, found: QuantizedWeight, bits: int, moments: torch.Tensor) -> torch.Tensor:
    """Every code once more, the best there is beside all the others: the error falls with every change."""
    import torch

    steps = found.scales.repeat_interleave(found.group, 1).T.contiguous()  # (K, N)
    codes = found.codes.T.to(weight.dtype).contiguous()  # (K, N)
    pull = moments @ (weight.T - codes * steps)  # (K, N): how much each column is asked for by what is wrong
    for first in range(0, len(codes), BLOCK):
        block = slice(first, first + BLOCK)
        near, changes = moments[block, block], torch.empty_like(codes[block])
        for i in range(len(near)):
            at = first + i
            code = (codes[at] + pull[at] / (near[i, i] * steps[at])).round_().clamp_(*extremes(bits))
            changes[i] = (codes[at] - code) * steps[at]
            codes[at] = code
            pull[at + 1 : first + len(near)].addr_(near[i, i + 1 :], changes[i])
        pull[first + BLOCK :] += moments[first + BLOCK :, block] @ changes
    return codes.T.contiguous().to(torch.int8)
