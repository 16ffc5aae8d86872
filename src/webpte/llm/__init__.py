"""Language models: prompts in, text out, over any program that ExecuTorch's Llama export made."""

from .cancel import CancelToken
from .errors import ConstraintError, ContextFullError, LogitsError, StaleGenerationError
from .generation import Generation, Piece, Usage
from .model import LLM
from .tokenizer import Tokenizer

__all__ = [
    "LLM",
    "CancelToken",
    "ConstraintError",
    "ContextFullError",
    "Generation",
    "LogitsError",
    "Piece",
    "StaleGenerationError",
    "Tokenizer",
    "Usage",
]
