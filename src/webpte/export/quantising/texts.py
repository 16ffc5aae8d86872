"""What a model reads while it is quantised."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...errors import Error, InputError
from ...llm.tokenizer_file import read_tokenizer

LONGEST = 8192  # tokens; more takes longer and changes little


def calibration_text(given: bool | str | os.PathLike[str]) -> str:
    """The built-in text, or that of a file."""
    if isinstance(given, bool):
        from ...tools.evaluation import calibration_text

        return calibration_text()
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"calibrate: {given} cannot be read as text: {error}") from error


def in_pieces(tokenizer: str, text: str, size: int, vocabulary: int) -> list[list[int]]:
    """Its tokens in pieces of `size`, by the text of a tokenizer.json. A short rest is left out."""
    ids = read_tokenizer("the tokenizer", tokenizer.encode()).encode(text).ids
    tokens = [token for token in ids if token < vocabulary][:LONGEST]
    pieces = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    return [piece for piece in pieces if len(piece) == size or piece is pieces[0]]


def chat_pieces(
    tokenizer: str, template: str, special_tokens: Mapping[str, str | bool], size: int, vocabulary: int
) -> list[list[int]]:
    """The built-in conversations as the model is asked them, each a piece, with the words of its template."""
    from ...llm.chat import render_chat
    from ...tools.evaluation import calibration_chats

    known = {name: text for name, text in special_tokens.items() if isinstance(text, str)}
    encode = read_tokenizer("the tokenizer", tokenizer.encode()).encode
    try:
        texts = [render_chat(template, chat, known, add_generation_prompt=False) for chat in calibration_chats()]
    except Error:
        return []  # a template that cannot be used is told of when somebody talks to the model
    found = (encode(text, add_special_tokens=False).ids for text in texts)
    pieces = ([token for token in tokens if token < vocabulary][:size] for tokens in found)
    return [piece for piece in pieces if piece]
