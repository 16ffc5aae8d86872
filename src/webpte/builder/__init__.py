"""Build programs of language models from checkpoints, without torch."""

from .llm import build_program, export_llm

__all__ = ["build_program", "export_llm"]
