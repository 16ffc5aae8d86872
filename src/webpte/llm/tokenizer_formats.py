"""Tokenizer files of other formats as a tokenizer.json: SentencePiece's models and tiktoken's ranks.

SentencePiece merges the two neighbors whose joint piece has the highest score, tiktoken those whose joint token has the
lowest rank. A tokenizer.json lists merges in order. Each piece therefore gives a merge for every way to cut it into two
other pieces, sorted by score or rank.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ..errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    import tokenizers

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6  # types of pieces, which GGUF has too
SPACE = "▁"  # represents a space in pieces
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WHITESPACE = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_WORDS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + WHITESPACE
# Llama 3's special tokens follow the tokens of its file, which does not name them. Numbered ones are reserved.
LLAMA3_NAMES = ("begin_of_text", "end_of_text", *"01", "finetune_right_pad_id", "step_id", "start_header_id")
LLAMA3_NAMES += ("end_header_id", "eom_id", "eot_id", "python_tag", "image", *map(str, range(2, 246)))
_RANK = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d{1,7}")
_BPE = 2  # of SentencePiece's types of models
MAX_PIECE_CHARS = 1024  # the longest in use have 256
_HINT = "Put the model's tokenizer.json beside the program."


def as_tokenizer_json(name: str, data: bytes) -> bytes:
    """Return the tokenizer.json for a file of one of the formats; the same bytes if it is one."""
    if _RANK.fullmatch(data[:200].split(b"\n", 1)[0].rstrip()):
        return _from_ranks(name, data).to_str().encode()
    return _from_sentencepiece(name, data).to_str().encode() if data[:1] == b"\n" else data


def _cuts(piece: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of pieces whose concatenation is a piece."""
    if len(piece) > MAX_PIECE_CHARS:
        raise FormatError(
            argument="the tokenizer's longest token",
            expected=f"at most {MAX_PIECE_CHARS} characters",
            got=len(piece),
            code="vocabulary",
        )
    for cut in range(1, len(piece)):
        if piece[:cut] in ids and piece[cut:] in ids:
            yield piece[:cut], piece[cut:]


@cache
def byte_alphabet() -> dict[str, int]:
    """Return the alphabet of byte-level tokenizers: visible bytes stand for themselves, the rest start at 256."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


# -- tiktoken ----------------------------------------------------------------------------------------------------------


def _from_ranks(name: str, data: bytes) -> tokenizers.Tokenizer:
    """Return the byte-level tokenizer of lines with a token in base64 and its rank, with Llama 3's special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    ranks: dict[str, int] = {}
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        token, _, rank = line.partition(b" ")
        try:
            text = "".join(letters[byte] for byte in base64.b64decode(token, validate=True))
            ranks[text] = int(rank)
        except (binascii.Error, ValueError) as error:
            raise FormatError(
                argument=name, expected="lines with a token in base64 and its rank", got=f"{line[:60]!r}", code="ranks"
            ) from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise FormatError(argument=name, expected=f"ranks 0 to {len(ranks) - 1}, each once", got="others", code="ranks")
    merges = [
        (number, ranks[left], ranks[right], left, right)
        for token, number in ranks.items()
        for left, right in _cuts(token, ranks)
    ]
    pairs = [(left, right) for *_, left, right in sorted(merges)]
    tokenizer = Tokenizer(models.BPE(vocab=ranks, merges=pairs, ignore_merges=True))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(LLAMA3_WORDS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    names = [f"<|reserved_special_token_{name}|>" if name.isdecimal() else f"<|{name}|>" for name in LLAMA3_NAMES]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in names])
    return _with_bos(tokenizer, names[0])


def _with_bos(tokenizer: tokenizers.Tokenizer, text: str) -> tokenizers.Tokenizer:
    """Put a token before every text, as the runners of these files do."""
    from tokenizers import processors

    number = tokenizer.token_to_id(text)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{text} $A", special_tokens=[(text, number)])
    return tokenizer


# -- SentencePiece -----------------------------------------------------------------------------------------------------


def sentencepiece_bpe(
    pieces: Sequence[str], scores: Sequence[float], kinds: Sequence[int], unknown: int | None, *, prefixed: bool
) -> tokenizers.Tokenizer:
    """Return the tokenizer of these pieces. If `prefixed`, a space is put before every text."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers

    if not prefixed:  # user-defined pieces are stored with spaces, but matched in text without spaces
        pieces = [p.replace(" ", SPACE) if kind == USER_DEFINED else p for p, kind in zip(pieces, kinds, strict=True)]
    model = models.BPE(
        vocab={piece: number for number, piece in enumerate(pieces)},
        merges=_merges(pieces, scores, kinds),
        unk_token=pieces[unknown] if unknown is not None and unknown < len(pieces) else None,
        fuse_unk=True,
        byte_fallback=BYTE in kinds,
    )
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefixed else spaces
    tokenizer.decoder = _decoder(prefixed)
    own = [p for p, kind in zip(pieces, kinds, strict=True) if kind == USER_DEFINED]
    tokenizer.add_tokens([AddedToken(piece, normalized=not prefixed) for piece in own])
    control = [p for p, kind in zip(pieces, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in control])
    return tokenizer


def _merges(pieces: Sequence[str], scores: Sequence[float], kinds: Sequence[int]) -> list[tuple[str, str]]:
    """Return every pair of pieces whose concatenation is a piece, the highest scores first."""
    ids: Mapping[str, int] = {p: n for n, p in enumerate(pieces) if kinds[n] == NORMAL}
    merges = [
        (-scores[number], ids[left], ids[right]) for piece, number in ids.items() for left, right in _cuts(piece, ids)
    ]
    return [(pieces[left], pieces[right]) for _, left, right in sorted(merges)]


def _decoder(prefixed: bool) -> Any:
    from tokenizers import decoders

    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefixed else steps)


def _from_sentencepiece(name: str, data: bytes) -> tokenizers.Tokenizer:
    """Return the tokenizer of SentencePiece's protocol buffer."""
    pieces, scores, kinds = [], [], []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    try:
        for field, value in _fields(data):
            if field == 1:
                piece = dict(_fields(cast(bytes, value)))
                pieces.append(cast(bytes, piece[1]).decode())
                scores.append(float(struct.unpack("<f", cast(bytes, piece.get(2, bytes(4))))[0]))
                kinds.append(cast(int, piece.get(3, NORMAL)))
            elif field in (2, 3):
                (trainer if field == 2 else normalizer).update(_fields(cast(bytes, value)))
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, struct.error) as error:
        raise FormatError(f"{name}: not a SentencePiece model", code="not_a_tokenizer") from error
    refused = {
        "its model is not BPE": trainer.get(3, 1) != _BPE,
        "it replaces characters": bool(normalizer.get(2)),
        "it removes spaces": bool(normalizer.get(4, 1)),
    }
    if any(refused.values()):
        reasons = ", ".join(reason for reason, holds in refused.items() if holds)
        raise UnsupportedError(f"{name}: the tokenizer cannot be converted: {reasons}", code="tokenizer", hint=_HINT)
    unknown, bos = (_signed(trainer.get(field, default)) for field, default in ((40, 0), (41, 1)))
    tokenizer = sentencepiece_bpe(pieces, scores, kinds, unknown, prefixed=bool(normalizer.get(3, 1)))
    return _with_bos(tokenizer, pieces[bos]) if 0 <= bos < len(pieces) else tokenizer


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: integers, and the bytes of strings, messages and floats."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        size, at = _varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
        if size > len(data) - at:
            raise ValueError("a field ends after the message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        number, at = number | (byte & 127) << shift, at + 1
        if byte < 128:
            return number, at
    raise ValueError("an integer has more than 64 bits")


def _signed(number: int | bytes) -> int:
    """Return the value of a signed integer. Ids of tokens that the model does not have are negative."""
    assert isinstance(number, int)
    return number - (1 << 64) if number >= 1 << 63 else number
