"""Round the weights of a layer for its inputs.

The objective is the error of the layer's outputs over a text: E H E' for a weight error E, where H = X'X are the
moments of the inputs. Columns are rounded in order, and later ones compensate the error of earlier ones (GPTQ). Then
the scales are fitted again, and each code is replaced by the best one while all others stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .quantize import Grouped, extremes, grouped, rounded_scales

Array = np.ndarray[Any, Any]
DAMPING = 0.01  # of the mean of H's diagonal, added to the diagonal
BLOCK_COLUMNS = 32  # errors are propagated column by column within a block, and at once beyond it
SWEEPS = 1  # refinements of scales and codes
MAX_SYSTEM_FLOATS = 1 << 24  # of the linear systems that are solved together


class InputMoments:
    """The moments H (K, K) of a layer's inputs, damped, with the factor of their inverse."""

    def __init__(self, moments: Array) -> None:
        mean = float(moments.diagonal().mean())
        self.matrix = moments.copy()
        self.matrix[np.diag_indices_from(moments)] += np.float32(DAMPING * mean if mean > 0 else 1.0)
        # Largest inputs first: their errors are compensated by all others.
        self.order = np.argsort(-self.matrix.diagonal(), kind="stable")
        self.factor = _inverse_factor(self.matrix[np.ix_(self.order, self.order)])

    def error(self, weight: Array, codes: Grouped) -> Array:
        """Return the squared error of each row's outputs, summed over the inputs, (N,)."""
        wrong = weight - codes.values()
        result: Array = np.einsum("nk,nk->n", wrong @ self.matrix, wrong)
        return result


def compensated(weight: Array, group: int, bits: int, moments: InputMoments) -> Grouped:
    """Return the codes of a weight (N, K); its error is never above that of the nearest codes."""
    plain = grouped(weight, bits, group, moments.matrix.diagonal())
    best = Grouped(_round_in_order(weight, plain.scales, bits, moments), plain.scales)
    for _ in range(SWEEPS):
        best = Grouped(best.codes, rounded_scales(_refitted(weight, best, moments.matrix), bits))
        best = Grouped(_descend(weight, best, bits, moments.matrix), best.scales)
    worse = moments.error(weight, best) > moments.error(weight, plain)  # (N,)
    best.codes[worse], best.scales[worse] = plain.codes[worse], plain.scales[worse]
    return best


def _inverse_factor(matrix: Array) -> Array:
    """Return the upper triangular U with U'U = the inverse of a positive matrix."""
    # With rows and columns reversed, a Cholesky factor is upper triangular: H = R R', and U is the inverse of R.
    flipped = matrix[::-1, ::-1]
    try:
        lower = np.linalg.cholesky(flipped)
    except np.linalg.LinAlgError:  # not positive in f32
        lower = np.linalg.cholesky(flipped.astype(np.float64)).astype(np.float32)
    return _inverse(lower[::-1, ::-1])


def _inverse(upper: Array) -> Array:
    """Return the inverse of an upper triangular matrix, by halves: a third of the work of `np.linalg.inv`."""
    size = len(upper)
    if size <= 2 * BLOCK_COLUMNS:
        result: Array = np.linalg.inv(upper)
        return result
    half = size // 2
    result = np.zeros_like(upper)
    first, last = _inverse(upper[:half, :half]), _inverse(upper[half:, half:])
    result[:half, :half], result[half:, half:] = first, last
    result[:half, half:] = -(first @ upper[:half, half:]) @ last
    return result


def _blocks(columns: int) -> Iterator[slice]:
    for first in range(0, columns, BLOCK_COLUMNS):
        yield slice(first, min(columns, first + BLOCK_COLUMNS))


def _round_in_order(weight: Array, scales: Array, bits: int, moments: InputMoments) -> Array:
    """Round column by column, and propagate each error to the columns not rounded yet."""
    order, factor = moments.order, moments.factor
    remaining = np.ascontiguousarray(weight.T[order])  # (K, N): the weight plus the propagated errors
    steps = np.repeat(scales.T, weight.shape[1] // scales.shape[1], axis=0)[order]  # (K, N)
    codes = np.empty_like(remaining)
    low, high = extremes(bits)
    for block in _blocks(len(remaining)):
        near, rows, errors = factor[block, block], remaining[block], np.empty_like(remaining[block])
        for i, (row, step, code) in enumerate(zip(rows, steps[block], codes[block], strict=True)):
            np.divide(row, step, out=code)
            np.rint(code, out=code)
            np.clip(code, low, high, out=code)
            np.multiply(code, step, out=errors[i])
            np.subtract(row, errors[i], out=errors[i])
            errors[i] /= near[i, i]
            rows[i + 1 :] -= near[i, i + 1 :, None] * errors[i]
        remaining[block.stop :] -= factor[block, block.stop :].T @ errors
    result = np.empty(codes.shape, np.int8)
    result[order] = codes
    return np.ascontiguousarray(result.T)


def _refitted(weight: Array, current: Grouped, matrix: Array) -> Array:
    """Return the scales of each row with the least error for these codes, by a small linear system per row."""
    count, groups = current.scales.shape
    parts = max(1, MAX_SYSTEM_FLOATS // groups**2)  # rows that are solved together
    return np.concatenate(
        [
            _solve_scales(weight[start : start + parts], current.rows(slice(start, start + parts)), matrix)
            for start in range(0, count, parts)
        ]
    )


def _solve_scales(weight: Array, current: Grouped, matrix: Array) -> Array:
    count, groups = current.scales.shape
    group = current.group
    codes = current.codes.astype(np.float32).reshape(count, groups, group)  # (N, G, group)
    target = (codes * (weight @ matrix).reshape(codes.shape)).sum(-1)  # (N, G)
    system = np.empty((count, groups, groups), np.float32)
    for g in range(groups):
        products = codes[:, g] @ matrix[g * group : (g + 1) * group]  # (N, K)
        np.einsum("ngk,ngk->ng", products.reshape(codes.shape), codes, out=system[:, g])
    diagonal = np.einsum("ngg->ng", system)
    diagonal += diagonal.mean(1, keepdims=True) * np.float32(1e-6) + np.float32(1e-20)  # of groups without codes
    solved = np.linalg.solve(system, target[..., None])[..., 0]
    used = (codes != 0).any(-1) & np.isfinite(solved) & (solved != 0)
    result: Array = np.where(used, solved, current.scales).astype(np.float32)
    return result


def _descend(weight: Array, current: Grouped, bits: int, matrix: Array) -> Array:
    """Replace every code by the best one given all others: the error falls with every change."""
    steps = np.repeat(current.scales.T, current.group, axis=0)  # (K, N)
    codes = np.ascontiguousarray(current.codes.T).astype(np.float32)  # (K, N)
    pull = matrix @ (weight.T - codes * steps)  # (K, N): the negative gradient of the error
    low, high = extremes(bits)
    for block in _blocks(len(codes)):
        near, pulls, changes = matrix[block, block], pull[block], np.empty_like(codes[block])
        for i, (row, step, code) in enumerate(zip(pulls, steps[block], codes[block], strict=True)):
            best = row / (near[i, i] * step)
            best += code
            np.rint(best, out=best)
            np.clip(best, low, high, out=best)
            np.subtract(code, best, out=changes[i])
            changes[i] *= step
            code[:] = best
            pulls[i + 1 :] += near[i, i + 1 :, None] * changes[i]
        pull[block.stop :] += matrix[block.stop :, block] @ changes
    return np.ascontiguousarray(codes.T).astype(np.int8)
