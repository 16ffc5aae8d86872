"""What a tokenizer.json may ask of the `tokenizers` package, which does whatever it is told.

A few replacements that each lengthen the text, one after the other, fill the memory and abort the process. So how much
a text can grow is worked out from the parts before any text is given to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..errors import FormatError

LARGEST_FILE = 128 << 20  # bytes; the largest in use have some 35 MB
MOST_PARTS = 64  # of a pipeline
MOST_GROWTH = 16  # of a text by all replacements together
LONGEST_ADDITION = 1000  # characters that a part puts before every text
MOST_PIECES = 32  # of what a post-processor adds, or repetitions of the text
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


def check_parts(inner: Any) -> None:
    """Refuse a tokenizer whose parts can make far more of a text than there is."""
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        part = getattr(inner, name)
        if part is not None:
            _check(name, list(_flat(json.loads(part.__getstate__()))))


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    """A part and the parts of a sequence."""
    if isinstance(part, dict):
        yield part
        for key in _LISTS:
            for inside in part.get(key) or ():
                yield from _flat(inside)


def _check(name: str, parts: list[dict[str, Any]]) -> None:
    growth = 1.0
    for part in parts:
        growth *= max(1.0, _growth(name, part))
        if part.get("type") == "TemplateProcessing":
            _check_template(part)
    if len(parts) > MOST_PARTS or growth > MOST_GROWTH:
        raise FormatError(
            f"the tokenizer's {name} has {len(parts)} parts that can make a text {growth:g} times as long; "
            f"{MOST_PARTS} and {MOST_GROWTH} times are the most"
        )


def _growth(name: str, part: dict[str, Any]) -> float:
    """How many times as long a part can make a text."""
    addition = part.get("prepend")
    if isinstance(addition, str) and len(addition) > LONGEST_ADDITION:
        raise FormatError(f"the tokenizer's {name} puts {len(addition)} characters before every text")
    if part.get("type") != "Replace":
        return 1.0
    pattern, content = part.get("pattern") or {}, str(part.get("content", ""))
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if literal == "":
        raise FormatError(f"the tokenizer's {name} replaces the empty text, which is everywhere", code="empty_pattern")
    return len(content) / len(literal) if literal else float(len(content))  # an expression may match one character


def _check_template(part: dict[str, Any]) -> None:
    tokens = part.get("special_tokens") or {}
    added = [len(token.get("ids", ())) for token in tokens.values()] if isinstance(tokens, dict) else []
    pieces = max((len(part.get(key) or ()) for key in ("single", "pair")), default=0)
    if pieces * max([1, *added]) > MOST_PIECES:
        raise FormatError(
            f"the tokenizer's post_processor adds {pieces} pieces to every text; {MOST_PIECES} is the most"
        )
