"""Tokenizers for a page: refused where its own code (web/src/language/tokens) could differ from the package's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..errors import FormatError, UnsupportedError

KINDS = {
    "normalizer": "BertNormalizer Lowercase NFC NFD NFKC NFKD Prepend Replace Sequence Strip StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Metaspace Punctuation Sequence Split "
    "Whitespace WhitespaceSplit",
    "model": "BPE Unigram WordLevel WordPiece",
    "post_processor": "BertProcessing ByteLevel RobertaProcessing Sequence TemplateProcessing",
    "decoder": "BPEDecoder ByteFallback ByteLevel Fuse Metaspace Replace Sequence Strip WordPiece",
}
_PARTS = ("normalizers", "pretokenizers", "processors", "decoders")
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)  # of characters; escapes outside stay as they are
# What the page does not translate of Oniguruma's expressions: escapes, groups, possessive quantifiers.
_ESCAPE = re.compile(r"\\(?:([pP]\{|x\{|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[nrtfvswdSWD]|[^a-zA-Z0-9])|.)", re.DOTALL)
_OUTSIDE = re.compile(r"\(\?(?!:|=|!|<=|<!|i:)|(?:[*+?]|\{\d+(?:,\d*)?\})\+")


def check_tokenizer(data: bytes) -> None:
    """Raise an UnsupportedError that names the part of a `tokenizer.json` which a page lacks, if there is one."""
    try:
        described = json.loads(data)
        missing = next(_unsupported(described), None)
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(f"the tokenizer is not a tokenizer.json: {error}", code="not_a_tokenizer") from error
    if missing is not None:
        raise UnsupportedError(
            f"tokenizer.json: {missing} is not supported in a page. Run the model with webpte itself, or take a "
            "tokenizer without it.",
            code="tokenizer_part",
        )


def _unsupported(described: dict[str, Any]) -> Iterator[str]:
    for place, kinds in KINDS.items():
        for part in _flat(described.get(place)):
            kind = part.get("type")
            if kind not in kinds.split() and not (place == "model" and kind is None):
                yield f"the {place} {kind}"
            pattern = part.get("pattern")
            if isinstance(pattern, dict) and "Regex" in pattern:
                yield from _of_expression(pattern["Regex"])
    if described["model"].get("dropout"):
        yield "the model's dropout"


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    """A part and the parts of a sequence."""
    if part is not None:
        yield part
        for key in _PARTS:
            for inside in part.get(key) or ():
                yield from _flat(inside)


def _of_expression(pattern: str) -> Iterator[str]:
    missing = [found[0] for found in _ESCAPE.finditer(pattern) if found[1] is None]
    for found in _CLASS.finditer(pattern):
        inside = _ESCAPE.sub("", found[0])[1:]
        missing += [part for part in ("[", "&&") if part in inside]
    outside = _CLASS.sub("a", pattern)
    missing += [found[0] for found in _OUTSIDE.finditer(outside)]
    for part in missing:
        yield f"{part} in the expression {pattern}"
