"""Walking several operands at once under NumPy's broadcasting rule."""

from __future__ import annotations

from dataclasses import dataclass

from .context import Tensor
from .shapes import Dims, broadcast_strides, check_rank, coalesce, strides


@dataclass(frozen=True, slots=True)
class Walk:
    """An output's dims, merged as far as the operands allow, and each operand's strides along them."""

    dims: Dims
    layouts: tuple[Dims, ...]
    flat: bool  # every operand is read in the order the output is written

    @property
    def rank(self) -> int:
        return len(self.dims)


def walk(out: Tensor, *operands: Tensor) -> Walk:
    """How to read the operands for each element of `out`, whose dims are set."""
    dims, layouts = coalesce(out.dims, *(broadcast_strides(t.dims, out.dims) for t in operands))
    check_rank(dims)
    return Walk(dims, layouts, all(layout == strides(dims) for layout in layouts))
