"""Codes and scales of a weight: which scale, so that the codes are nearest to the real values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CLIPS = 9  # that are tried with the sign that gives the further end to the largest value
OTHERS = {4: 4, 8: 0}  # that are tried with the other sign, which matters where codes are few
ROUNDS = 2  # of codes by the best scale so far, and the scale that fits those
LEAST_CLIP = {4: 0.5, 8: 0.9}  # of the largest value: below, too much is cut off to be nearer
TINY = 1e-20  # a group of smaller values is zero
ROOM = 1 << 17  # weights that are looked at together: as many as stay in a cache of the CPU
LONG = 256  # groups that are summed up as they lie; the values of shorter ones are laid out one beside the other


@dataclass(frozen=True)
class Codes:
    """A weight (N, K) as whole numbers times a scale for every `K / G` columns of a row."""

    codes: torch.Tensor  # (N, K) int8
    scales: torch.Tensor  # (N, G) f32

    @property
    def group(self) -> int:
        return int(self.codes.shape[1] // self.scales.shape[1])

    def values(self) -> torch.Tensor:
        """(N, K)"""
        grouped = self.codes.unflatten(1, (-1, self.group)).to(self.scales.dtype)  # (N, G, K / G)
        return (grouped * self.scales[..., None]).flatten(1)


def extremes(bits: int) -> tuple[int, int]:
    """Both ends are used: a scale may be negative, and gives the further end to the side that needs it."""
    return -(1 << bits - 1), (1 << bits - 1) - 1


def least_squares(weight: torch.Tensor, group: int, bits: int, importance: torch.Tensor | None = None) -> Codes:
    """The codes and scales with the least squared error, column by column as `importance` (K,) weighs it.

    For every group several clips are tried, with either sign, each with the scale that fits its codes best, and the
    best of them is refined. One is the largest value itself, so the error is never above that of scaling by the
    maximum.
    """

    def fit(rows: torch.Tensor) -> Codes:
        scales = _Fit(rows, group, bits, importance).scales()
        return Codes(nearest(rows, scales, bits), scales)

    with _workers() as each:
        return _joined(each(fit, _in_parts(weight)))


def _joined(parts: Iterable[Codes]) -> Codes:
    import torch

    every = list(parts)
    return Codes(torch.cat([part.codes for part in every]), torch.cat([part.scales for part in every]))


def nearest(weight: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    """The codes (N, K) of a weight by scales (N, G)."""
    import torch

    grouped = weight.unflatten(1, (scales.shape[1], -1))  # (N, G, K / G)
    return (grouped / scales[..., None]).round_().clamp_(*extremes(bits)).flatten(1).to(torch.int8)


def squared_error(weight: torch.Tensor, codes: Codes) -> float:
    """Mean, relative to the mean square of the weight."""
    wrong = whole = 0.0
    count = _rows(weight)
    for rows, part, steps in zip(*(tensor.split(count) for tensor in (weight, codes.codes, codes.scales)), strict=True):
        wrong += float(((rows - Codes(part, steps).values()) ** 2).sum())
        whole += float((rows**2).sum())
    return wrong / whole if whole else 0.0


@contextmanager
def _workers() -> Iterator[Callable[..., Iterable[Codes]]]:
    """A `map` with as many threads as torch has: of parts this small, each is done in one thread at a better pace."""
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
    return max(1, ROOM // int(weight.shape[1]))


class _Fit:
    """The scales of some rows, the best of those that were tried so far."""

    def __init__(self, weight: torch.Tensor, group: int, bits: int, importance: torch.Tensor | None) -> None:
        import torch

        self._bits = bits
        self._dim = -1 if group >= LONG else 0
        self._values = self._laid_out(weight, group)  # (N, G, group), or (group, N, G)
        self._weighed = None if importance is None else self._laid_out(importance[None], group)
        self._target = self._values if self._weighed is None else self._values * self._weighed
        self._room, self._products = torch.empty_like(self._values), torch.empty_like(self._values)

    def _laid_out(self, rows: torch.Tensor, group: int) -> torch.Tensor:
        grouped = rows.unflatten(1, (-1, group))
        return grouped if self._dim else grouped.permute(2, 0, 1).contiguous()

    def scales(self) -> torch.Tensor:
        """(N, G)"""
        import torch

        low, high = extremes(self._bits)
        whole = (high - low) / 2
        top, bottom = self._values.amax(self._dim), self._values.amin(self._dim)  # (N, G)
        largest = torch.maximum(top, -bottom)
        empty = largest < TINY
        further = torch.where(top > -bottom, -largest, largest) / whole
        best, gained = torch.where(empty, 1.0, largest / whole), torch.full_like(largest, -1.0)
        tried = [further * clip for clip in _clips(self._bits, CLIPS)]
        tried += [further * -clip for clip in _clips(self._bits, OTHERS[self._bits])]
        for scale in [largest / whole, largest / high, *tried]:
            best, gained = self._better(torch.where(empty, 1.0, scale), best, gained)
        for _ in range(ROUNDS):
            best, gained = self._better(best, best, gained)
        return best

    def _better(
        self, scale: torch.Tensor, best: torch.Tensor, gained: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The scale that fits the codes by `scale`, and what it gains, where that is more than was gained by `best`."""
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
    """From the least to the largest value itself."""
    least = LEAST_CLIP[bits]
    return [least + (1 - least) * (number + 1) / count for number in range(count)]


def exact(weight: torch.Tensor, group: int, bits: int) -> Codes | None:
    """Codes that give the very values, where every group has them: in a checkpoint that was quantised before.

    If a group's largest value is k steps, the step is that value by k: every k is tried, and must give all values of
    the group to the last bit.
    """
    found = []
    for rows in _in_parts(weight):
        scales = _steps(rows, group, bits)
        if scales is None:
            return None
        found.append(Codes(nearest(rows, scales, bits), scales))
    return _joined(found)


def _steps(weight: torch.Tensor, group: int, bits: int) -> torch.Tensor | None:
    """The steps (N, G) that give a weight's values exactly; None as soon as a row has a group without one."""
    import torch

    if len(weight) > 1 and _steps(weight[:1], group, bits) is None:  # almost every weight ends here
        return None
    low, high = extremes(bits)
    grouped = weight.unflatten(1, (-1, group))  # (N, G, group)
    largest = grouped.gather(-1, grouped.abs().argmax(-1, keepdim=True))  # (N, G, 1), with its sign
    found = torch.zeros_like(largest)
    for code in [*range(low, 0), *range(high, 0, -1)]:
        step = largest / code
        codes = torch.where(step == 0, 0, (grouped / step).round())
        fits = ((codes * step == grouped) & (codes >= low) & (codes <= high)).all(-1, keepdim=True)
        found = torch.where(fits & (found == 0), torch.where(step == 0, 1.0, step), found)
    return None if bool((found == 0).any()) else found.squeeze(-1)
