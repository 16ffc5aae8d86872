"""The bound on the size of a prompt in bytes. The tokens of a text that cannot fit may take a minute to compute."""

from __future__ import annotations

from .errors import ContextFullError
from .tokenizer import Tokenizer


def check_prompt_size(text: str, tokenizer: Tokenizer, context: int) -> str:
    """Return the text. Raise ContextFullError if it has more bytes than `context` tokens can stand for."""
    limit = context * tokenizer.max_token_bytes
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise ContextFullError(
            f"prompt: expected at most {limit:,} bytes, {context} tokens of the longest kind, got {size:,}"
        )
    return text
