"""Choose the tokens that a model reads for calibration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..checkpoints.family import Checkpoint
from ..errors import Error, InputError
from ..llm.tokenizer_file import read_tokenizer
from .options import LLMOptions

MAX_CALIBRATION_TOKENS = 8192  # more take longer and change little


def calibration_text(source: bool | str | os.PathLike[str]) -> str:
    """Return the built-in text, or the text of a file."""
    if isinstance(source, bool):
        from ..measure.evaluation import calibration_text

        return calibration_text()
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"calibrate: {source} cannot be read as text: {error}", code="unreadable") from error


def token_pieces(tokenizer: str, text: str, size: int, vocabulary: int) -> list[list[int]]:
    """Return the tokens of a text in pieces of `size`, without a shorter last one. `tokenizer` is a tokenizer.json."""
    ids = read_tokenizer("the tokenizer", tokenizer.encode()).encode(text).ids
    tokens = [token for token in ids if token < vocabulary][:MAX_CALIBRATION_TOKENS]
    pieces = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    return [piece for piece in pieces if len(piece) == size or piece is pieces[0]]


def chat_pieces(
    tokenizer: str, template: str, special_tokens: Mapping[str, str | bool], size: int, vocabulary: int
) -> list[list[int]]:
    """Return the tokens of the built-in conversations, each a piece, rendered with the model's template."""
    from ..llm.prompts import render_chat
    from ..measure.evaluation import calibration_chats

    names = {name: text for name, text in special_tokens.items() if isinstance(text, str)}
    encode = read_tokenizer("the tokenizer", tokenizer.encode()).encode
    try:
        texts = [render_chat(template, chat, names, add_generation_prompt=False) for chat in calibration_chats()]
    except Error:
        return []  # a template that cannot be rendered is reported when the model is used for chat
    encoded = (encode(text, add_special_tokens=False).ids for text in texts)
    pieces = ([token for token in tokens if token < vocabulary][:size] for tokens in encoded)
    return [piece for piece in pieces if piece]


def calibration_pieces(source: Checkpoint, options: LLMOptions) -> list[list[int]]:
    """Return the tokens that a model reads for calibration: a text in pieces, and conversations for its template."""
    size, vocabulary = options.sizes(source).max_tokens - 1, source.architecture.vocab_size
    pieces = token_pieces(source.tokenizer, calibration_text(options.calibrate), size, vocabulary)
    if options.calibrate is True and source.chat_template is not None:
        pieces += chat_pieces(source.tokenizer, source.chat_template, source.special_tokens, size, vocabulary)
    return pieces
