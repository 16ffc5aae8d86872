"""The names by which a model calls its special tokens, such as `bos_token`. Chat templates ask for them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FormatError
from .tokenizer import Tokenizer
from .tools import ToolFormat

LARGEST_FILE = 16 << 20


@dataclass(frozen=True)
class SpecialTokens:
    """What `tokenizer_config.json` says of them."""

    texts: Mapping[str, str] = field(default_factory=dict)  # by name: bos_token, eos_token, unk_token ...
    add_bos: bool = False  # before every text, though the tokenizer's own post-processor may not say so
    tool_format: ToolFormat | None = None  # how the model writes calls of tools


def read_special_tokens(
    path: Path | None, tokenizer: Tokenizer, bos_id: int | None, eos_ids: Sequence[int]
) -> SpecialTokens:
    """From a `tokenizer_config.json`; what it does not name is named by the program's own numbers."""
    known = {"bos_token": bos_id, "eos_token": eos_ids[0] if eos_ids else None}
    texts = {name: text for name, number in known.items() if (text := tokenizer.token_text(number)) is not None}
    config = _read_object(path) if path is not None else {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value  # an added token is written as an object
        if name.endswith("_token") and isinstance(text, str):
            texts[name] = text
    calls = config.get("tool_format")
    return SpecialTokens(
        texts,
        config.get("add_bos_token") is True,
        ToolFormat.from_json(calls, str(path)) if calls is not None else None,
    )


def encode_prompt(tokenizer: Tokenizer, special: SpecialTokens, text: str, *, parse_special: bool = False) -> list[int]:
    """Return the tokens of a text to continue, after what the model expects before every text, once. With
    `parse_special`, special tokens spelled in the text are recognised."""
    plain = tokenizer.encode(text, parse_special=parse_special)
    full = tokenizer.encode(text, add_special=True, parse_special=parse_special)
    # Only what stands before: an end-of-text behind it would be the end of the answer too.
    starts = (at for at in range(len(full) - len(plain) + 1) if full[at : at + len(plain)] == plain)
    tokens = full[: next(starts, 0)] + plain
    bos = tokenizer.token_id(special.texts["bos_token"]) if "bos_token" in special.texts else None
    if bos is not None:
        if special.add_bos and tokens[:1] != [bos]:
            tokens = [bos, *tokens]
        if tokens[:2] == [bos, bos]:  # the text begins with it already
            tokens = tokens[1:]
    return tokens


def _read_object(path: Path) -> dict[str, Any]:
    try:
        if os.path.getsize(path) > LARGEST_FILE:
            raise FormatError(f"{path} has {os.path.getsize(path)} bytes; {LARGEST_FILE} is the most")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path} is not a JSON object")
    return found
