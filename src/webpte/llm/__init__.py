"""Language models: prompts in, text out, over any program that ExecuTorch's Llama export made."""

from .cancel import CancelToken
from .errors import ContextFullError
from .generation import Generation, Piece, Usage
from .model import LLM
from .tokenizer import Tokenizer

__all__ = ["LLM", "CancelToken", "ContextFullError", "Generation", "Piece", "Tokenizer", "Usage"]
