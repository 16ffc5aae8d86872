"""The bytes that each token of a vocabulary stands for, which is what a grammar is followed by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedError

if TYPE_CHECKING:
    import tokenizers

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Parts of a decoder that change nothing, or only the first space of a whole text.
_NEUTRAL = {"Fuse", "Strip"}


def bytes_of_tokens(inner: tokenizers.Tokenizer, count: int) -> list[bytes | None]:
    """What tokens 0 to `count` are in a text, wherever they stand in it; None for a number that is no token."""
    read = _reader(list(_parts(json.loads(inner.decoder.__getstate__()) if inner.decoder is not None else None)))
    texts = (inner.id_to_token(number) for number in range(count))
    return [None if text is None else read(text) for text in texts]


def _parts(decoder: Any) -> Iterator[dict[str, Any]]:
    """The decoders of a sequence of them, in order."""
    if isinstance(decoder, dict):
        if decoder.get("type") == "Sequence":
            for inside in decoder.get("decoders") or ():
                yield from _parts(inside)
        else:
            yield decoder


def _reader(parts: list[dict[str, Any]]) -> Callable[[str], bytes]:
    """How a token as it is written in the vocabulary becomes bytes."""
    kinds = [str(part.get("type")) for part in parts]
    if kinds == ["ByteLevel"]:
        return _from_alphabet
    replaced, fallback = [], False
    for part, kind in zip(parts, kinds, strict=True):
        pattern = part.get("pattern")
        if kind == "Replace" and isinstance(pattern, dict) and "String" in pattern:
            replaced.append((str(pattern["String"]), str(part.get("content", ""))))
        elif kind == "Metaspace":
            replaced.append((str(part.get("replacement", "▁")), " "))
        elif kind == "ByteFallback":
            fallback = True
        elif kind not in _NEUTRAL:
            kinds = []
    if not kinds:  # spaces between tokens, or endings that depend on what follows: no bytes of a token's own
        named = ", ".join(str(part.get("type")) for part in parts) or "none"
        raise UnsupportedError(
            f"constraints need a tokenizer whose tokens have bytes of their own; its decoder is: {named}. "
            "Byte-level, byte-fallback and Metaspace tokenizers have them.",
            code="tokenizer",
        )
    return lambda text: _from_text(text, replaced, fallback)


def _from_text(text: str, replaced: list[tuple[str, str]], fallback: bool) -> bytes:
    if fallback and (found := _BYTE.fullmatch(text)):
        return bytes((int(found[1], 16),))
    for old, new in replaced:
        text = text.replace(old, new)
    return text.encode("utf-8", "surrogatepass")


def _from_alphabet(text: str) -> bytes:
    """Of a byte-level token, each character a byte. Added tokens may hold others, and are text as they stand."""
    alphabet = _alphabet()
    found = [alphabet.get(character) for character in text]
    return bytes(b for b in found if b is not None) if None not in found else text.encode("utf-8", "surrogatepass")


@cache
def _alphabet() -> dict[str, int]:
    """The characters that byte-level tokenizers write bytes with: visible ones as they are, the rest from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + at): byte for at, byte in enumerate(hidden)}
