"""Find the codes and scales of a weight with the least error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...builder.quantize import (
    CLIP_COUNT,
    LONG_GROUP_WEIGHTS,
    MAX_PART_WEIGHTS,
    MIN_CLIP,
    MIN_VALUE,
    OTHER_CLIP_COUNT,
    REFINEMENTS,
    extremes,
)

if TYPE_CHECKING:
    import torch

RELATIVE_TOLERANCE = 2.0**-20  # of products of codes and a step after two roundings
ULP_OFFSETS = (0, 1, -1, 2, -2, 3, -3)  # of a step from the largest value divided by its code


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight (N, K) as integers times a scale for every `K / G` columns of a row."""

    codes: torch.Tensor  # (N, K) int8
    scales: torch.Tensor  # (N, G) f32

    @property
    def group(self) -> int:
        return int(self.codes.shape[1] // self.scales.shape[1])

    def values(self) -> torch.Tensor:
        """Return the dequantized weight (N, K)."""
        grouped = self.codes.unflatten(1, (-1, self.group)).to(self.scales.dtype)  # (N, G, K / G)
        return (grouped * self.scales[..., None]).flatten(1)


def least_squares(
    weight: torch.Tensor, group: int, bits: int, importance: torch.Tensor | None = None
) -> QuantizedWeight:
    """Return the codes and scales with the least squared error; `importance` (K,) weighs the columns.

    For every group, several clips are tried with either sign, each with the best scale for its codes, and the best one
    is refined. One clip is the largest value itself, so the error is never above that of scaling by the maximum.
    """

    def fit(rows: torch.Tensor) -> QuantizedWeight:
        scales = _Fit(rows, group, bits, importance).scales()
        return QuantizedWeight(nearest(rows, scales, bits), scales)

    with _workers() as each:
        return _joined(each(fit, _in_parts(weight)))


def _joined(parts: Iterable[QuantizedWeight]) -> QuantizedWeight:
    import torch

    every = list(parts)
    return QuantizedWeight(torch.cat([part.codes for part in every]), torch.cat([part.scales for part in every]))


def nearest(weight: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the codes (N, K) of a weight for scales (N, G)."""
    import torch

    grouped = weight.unflatten(1, (scales.shape[1], -1))  # (N, G, K / G)
    return (grouped / scales[..., None]).round_().clamp_(*extremes(bits)).flatten(1).to(torch.int8)


def squared_error(weight: torch.Tensor, codes: QuantizedWeight) -> float:
    """Return the mean squared error, relative to the mean square of the weight."""
    wrong = whole = 0.0
    count = _rows(weight)
    for rows, part, steps in zip(*(tensor.split(count) for tensor in (weight, codes.codes, codes.scales)), strict=True):
        wrong += float(((rows - QuantizedWeight(part, steps).values()) ** 2).sum())
        whole += float((rows**2).sum())
    return wrong / whole if whole else 0.0


@contextmanager
def _workers() -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a `map` with as many threads as torch has: small parts are faster with one thread each."""
    import torch

    jobs = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(jobs)


def _in_parts(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from weight.detach().float().split(_rows(weight))


def _rows(weight: torch.Tensor) -> int:
    return max(1, MAX_PART_WEIGHTS // int(weight.shape[1]))


class _Fit:
    """The best scales of some rows so far."""

    def __init__(self, weight: torch.Tensor, group: int, bits: int, importance: torch.Tensor | None) -> None:
        import torch

        self._bits = bits
        self._dim = -1 if group >= LONG_GROUP_WEIGHTS else 0
        self._values = self._laid_out(weight, group)  # (N, G, group), or (group, N, G)
        self._weighed = None if importance is None else self._laid_out(importance[None], group)
        self._target = self._values if self._weighed is None else self._values * self._weighed
        self._room, self._products = torch.empty_like(self._values), torch.empty_like(self._values)

    def _laid_out(self, rows: torch.Tensor, group: int) -> torch.Tensor:
        grouped = rows.unflatten(1, (-1, group))
        return grouped if self._dim else grouped.permute(2, 0, 1).contiguous()

    def scales(self) -> torch.Tensor:
        """Return the scales (N, G)."""
        import torch

        low, high = extremes(self._bits)
        whole = (high - low) / 2
        top, bottom = self._values.amax(self._dim), self._values.amin(self._dim)  # (N, G)
        largest = torch.maximum(top, -bottom)
        empty = largest < MIN_VALUE
        further = torch.where(top > -bottom, -largest, largest) / whole
        best, gained = torch.where(empty, 1.0, largest / whole), torch.full_like(largest, -1.0)
        tried = [further * clip for clip in _clips(self._bits, CLIP_COUNT)]
        tried += [further * -clip for clip in _clips(self._bits, OTHER_CLIP_COUNT[self._bits])]
        for scale in [largest / whole, largest / high, *tried]:
            best, gained = self._better(torch.where(empty, 1.0, scale), best, gained)
        for _ in range(REFINEMENTS):
            best, gained = self._better(best, best, gained)
        return best

    def _better(
        self, scale: torch.Tensor, best: torch.Tensor, gained: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best scale for the codes of `scale`, and its gain, where the gain is above that of `best`."""
        import torch

        codes = torch.mul(self._values, scale.reciprocal().unsqueeze(self._dim), out=self._room)
        codes.round_().clamp_(*extremes(self._bits))
        # The scale that fits these codes best is <codes, w> / <codes, codes>; the error is <w, w> less what is gained.
        inner = torch.mul(codes, self._target, out=self._products).sum(self._dim)
        squares = torch.mul(codes, codes, out=self._products)
        square = (squares if self._weighed is None else squares.mul_(self._weighed)).sum(self._dim)
        gain = inner * inner / square.clamp(min=torch.finfo(square.dtype).tiny)
        better = (square > 0) & (inner != 0) & (gain > gained)
        return torch.where(better, inner / square, best), torch.where(better, gain, gained)


def _clips(bits: int, count: int) -> list[float]:
    """Return clips from the smallest to the largest value itself."""
    least = MIN_CLIP[bits]
    return [least + (1 - least) * (number + 1) / count for number in range(count)]


def exact(weight: torch.Tensor, group: int, bits: int) -> QuantizedWeight | None:
    """Return codes that reproduce a weight exactly, if every group has them: the weight was quantized before.

    If a group's largest value is k steps, the step is that value divided by k, or a neighbouring float: both product
    and quotient are rounded. Every k is tried, and a step must reproduce all values of the group to the last bit.
    """
    if not _may_be_exact(weight.detach()[0, :group].float(), bits):  # almost every weight ends here
        return None
    with _workers() as each:
        parts = list(each(lambda rows: _exact_rows(rows, group, bits), _in_parts(weight)))
    return None if None in parts else _joined(parts)


def _counts(bits: int, largest: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
    """Return the codes that the largest value may have, and for which groups: positive steps first, as torchao."""
    low, high = extremes(bits)
    negative = largest < 0
    above = [(code, negative) for code in range(low, 0)] + [(code, ~negative) for code in range(high, 0, -1)]
    return above + [(code, ~where) for code, where in above]


def _may_be_exact(values: torch.Tensor, bits: int) -> bool:
    """Return whether the values of a group (group,) are close to multiples of some step."""
    import torch

    low, high = extremes(bits)
    steps = values[values.abs().argmax()] / torch.tensor([*range(low, 0), *range(1, high + 1)])  # (2 ** bits - 1,)
    return bool(_near(values[None], steps[:, None]).any()) or not bool(values.any())


def _near(grouped: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return which groups are close to multiples of their steps: (..., group) and (..., 1) to (...)."""
    return (((grouped / steps).round() * steps - grouped).abs() <= grouped.abs() * RELATIVE_TOLERANCE).all(-1)


def _exact_rows(weight: torch.Tensor, group: int, bits: int) -> QuantizedWeight | None:
    import torch

    grouped = weight.unflatten(1, (-1, group))  # (N, G, group)
    largest = grouped.gather(-1, grouped.abs().argmax(-1, keepdim=True)).squeeze(-1)  # (N, G), with its sign
    steps = (largest == 0).to(weight.dtype)  # 1 for a group of zeros; 0: not found yet
    codes = torch.zeros_like(weight.unflatten(1, (-1, group)))
    for code, where in _counts(bits, largest):
        pending = where & (steps == 0)
        if not bool(pending.any()):
            continue
        values, guess = grouped[pending], (largest[pending] / code)[:, None]  # (M, group), (M, 1)
        near = _near(values, guess)
        values, step, whole = values[near], guess[near], (values[near] / guess[near]).round()
        fitted = torch.zeros_like(step)
        for offset in ULP_OFFSETS:
            tried = _neighbour(step, offset)
            fits = (whole * tried == values).all(-1, keepdim=True)
            fitted = torch.where(fits & (fitted == 0), tried, fitted)
        low, high = extremes(bits)
        fitted = torch.where(((whole >= low) & (whole <= high)).all(-1, keepdim=True), fitted, 0.0)
        indices = pending.nonzero()[near].unbind(1)
        steps[indices], codes[indices] = fitted.squeeze(-1), whole
    return None if bool((steps == 0).any()) else QuantizedWeight(codes.flatten(1).to(torch.int8), steps)


def _neighbour(step: torch.Tensor, offset: int) -> torch.Tensor:
    """Return the float that is `offset` floats above `step`."""
    import torch

    return (step.contiguous().view(torch.int32) + offset).view(torch.float32)
