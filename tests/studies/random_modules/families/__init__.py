"""Statements of random programs. Each module here registers functions that propose a statement to a Maker."""

from . import elementwise, integers, layers, movement, reductions, state

__all__ = ["elementwise", "integers", "layers", "movement", "reductions", "state"]
