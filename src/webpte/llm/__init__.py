"""Language models: prompts in, text out, over any program that ExecuTorch's Llama export made."""

from .errors import ConstraintError, ContextFullError, LogitsError, QueueFullError, StaleGenerationError
from .generation import Generation, Piece, Usage
from .model import LLM
from .sequence import Sequence
from .settings import GenerateSettings
from .tokenizer import Tokenizer

__all__ = [
    "LLM",
    "ConstraintError",
    "ContextFullError",
    "GenerateSettings",
    "Generation",
    "LogitsError",
    "Piece",
    "QueueFullError",
    "Sequence",
    "StaleGenerationError",
    "Tokenizer",
    "Usage",
]
