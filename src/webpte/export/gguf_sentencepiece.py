"""A tokenizer of SentencePiece's BPE, rebuilt from the pieces and scores that a GGUF file has of it.

SentencePiece joins the two neighbours whose joint piece has the highest score. A tokenizer.json lists which two are
joined before which, so each piece gives a rule for every way to cut it into two others, in the order of scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import FormatError, UnsupportedError
from .fields import Fields

_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6  # of gguf.TokenType
_SPACE = "▁"  # what a space is in pieces


def rebuild_sentencepiece(fields: Fields) -> str:
    """The text of a tokenizer.json."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers

    keys = fields.under("tokenizer.ggml.")
    keys.need("tokens", "scores", "token_type")
    _refuse_rewriting(keys)
    pieces, scores, kinds = _columns(keys)
    prefixed = keys.flag("add_space_prefix", True)
    if not prefixed:  # what users defined is stored with spaces as they are, and is looked for in texts without any
        pieces = [p.replace(" ", _SPACE) if kind == _USER_DEFINED else p for p, kind in zip(pieces, kinds, strict=True)]
    unknown = keys.token_id("unknown_token_id")
    model = models.BPE(
        vocab={piece: number for number, piece in enumerate(pieces)},
        merges=_merges(pieces, scores, kinds),
        unk_token=pieces[unknown] if unknown is not None and unknown < len(pieces) else None,
        fuse_unk=True,
        byte_fallback=_BYTE in kinds,
    )
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefixed else spaces
    tokenizer.decoder = _decoder(prefixed)
    own = [p for p, kind in zip(pieces, kinds, strict=True) if kind == _USER_DEFINED]
    tokenizer.add_tokens([AddedToken(piece, normalized=not prefixed) for piece in own])
    control = [p for p, kind in zip(pieces, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in control])
    return str(tokenizer.to_str())


def _refuse_rewriting(keys: Fields) -> None:
    """What changes a text before it is cut, in ways that the file does not tell."""
    found = {
        f"tokenizer.ggml.{key}": why
        for key, why in (
            ("precompiled_charsmap", "characters are replaced by others"),
            ("remove_extra_whitespaces", "spaces are taken out"),
        )
        if keys.get(key)
    }
    if keys.values.get("general.architecture") == "phi3":
        found["general.architecture"] = "some of Phi-3's special tokens take the spaces behind them along"
    if found:
        reasons = ", ".join(f"{key}: {why}" for key, why in found.items())
        raise UnsupportedError(
            f"{keys.where} has a tokenizer that cannot be rebuilt ({reasons}). "
            "Export from the safetensors checkpoint, which has a tokenizer.json.",
            list(found),
        )


def _columns(keys: Fields) -> tuple[list[str], list[float], list[int]]:
    pieces, scores = keys.list_of("tokens", str), keys.list_of("scores", float, int)
    kinds = keys.list_of("token_type", int)
    if not len(pieces) == len(scores) == len(kinds):
        raise FormatError(
            f"{keys.where}: tokenizer.ggml has {len(pieces)} tokens, {len(scores)} scores and {len(kinds)} types"
        )
    return pieces, scores, kinds


def _merges(pieces: Sequence[str], scores: Sequence[float], kinds: Sequence[int]) -> list[tuple[str, str]]:
    """Every pair of pieces that are one together: those of the highest score first."""
    known: Mapping[str, int] = {p: n for n, p in enumerate(pieces) if kinds[n] == _NORMAL}
    found = [
        (-scores[number], known[piece[:cut]], known[piece[cut:]])
        for piece, number in known.items()
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
    return [(pieces[left], pieces[right]) for _, left, right in sorted(found)]


def _decoder(prefixed: bool) -> Any:
    from tokenizers import decoders

    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefixed else steps)
