"""Build programs from checkpoints without torch."""

from .llm import build_program

__all__ = ["build_program"]
