"""Rewrite a graph so that fewer kernels do the same work. Each pass can be switched off by its name."""

from .attention import rotate_in_attention
from .linears import narrow_scales
from .passes import PASSES, apply_passes, widen_halves
from .rewriter import Rewriter, roles

__all__ = ["PASSES", "Rewriter", "apply_passes", "narrow_scales", "roles", "rotate_in_attention", "widen_halves"]
