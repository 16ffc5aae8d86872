"""The named special tokens of a model, such as `bos_token`, which chat templates use."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FormatError
from .errors import ContextFullError
from .tokenizer import Tokenizer
from .tools import ToolFormat

MAX_FILE_BYTES = 16 << 20


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of `tokenizer_config.json`."""

    texts: Mapping[str, str] = field(default_factory=dict)  # by name: bos_token, eos_token, unk_token …
    add_bos: bool = False  # before every text, even if the tokenizer's post-processor does not add it
    tool_format: ToolFormat | None = None  # how the model writes tool calls


def read_special_tokens(
    path: Path | None, tokenizer: Tokenizer, bos_id: int | None, eos_ids: Sequence[int]
) -> SpecialTokens:
    """Return the special tokens of a `tokenizer_config.json`. The program's own numbers fill in bos and eos."""
    known = {"bos_token": bos_id, "eos_token": eos_ids[0] if eos_ids else None}
    texts = {name: text for name, number in known.items() if (text := tokenizer.token_text(number)) is not None}
    config = _read_object(path) if path is not None else {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value  # an added token is an object
        if name.endswith("_token") and isinstance(text, str):
            texts[name] = text
    calls = config.get("tool_format")
    return SpecialTokens(
        texts,
        config.get("add_bos_token") is True,
        ToolFormat.from_json(calls, str(path)) if calls is not None else None,
    )


def check_prompt_size(text: str, tokenizer: Tokenizer, context: int) -> str:
    """Return the text. Raise ContextFullError if it has more bytes than `context` tokens can stand for: the tokens of
    such a text may take a minute to compute."""
    limit = context * tokenizer.max_token_bytes
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise ContextFullError(
            argument="prompt",
            expected=f"at most {limit:,} bytes, {context} tokens of the longest kind",
            got=f"{size:,}",
        )
    return text


def encode_prompt(tokenizer: Tokenizer, special: SpecialTokens, text: str, *, parse_special: bool = False) -> list[int]:
    """Return the tokens of a text to continue, after what the model expects before every text, once. With
    `parse_special`, special tokens spelled in the text are recognized."""
    plain = tokenizer.encode(text, parse_special=parse_special)
    full = tokenizer.encode(text, add_special=True, parse_special=parse_special)
    # Only what precedes the text: an end-of-text token after it would end the answer, too.
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
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise FormatError(f"{path} has {os.path.getsize(path)} bytes; the limit is {MAX_FILE_BYTES}")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"not valid JSON: {error}", argument=str(path)) from error
    if not isinstance(value, dict):
        raise FormatError(argument=str(path), expected="a JSON object", got=type(value).__name__)
    return value
