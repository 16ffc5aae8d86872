"""How kernels load a tensor: see loads.wgsl."""

from __future__ import annotations

from .context import Tensor


def kind(tensor: Tensor, wide: int) -> str:
    """The kind of a load of `wide` neighbours: 1, 2 or 4."""
    return tensor.wgsl if wide == 1 else f"{tensor.wgsl}x{wide}"
