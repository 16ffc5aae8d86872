"""Build programs from checkpoints without torch."""

from .llm import build_program, export_language_model

__all__ = ["build_program", "export_language_model"]
