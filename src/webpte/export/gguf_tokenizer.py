"""Rebuild a tokenizer.json from the keys of a GGUF file: byte-level BPE and SentencePiece BPE.

SentencePiece merges the two neighbours whose joint piece has the highest score. A tokenizer.json lists merges in order.
Each piece therefore gives a merge for every way to cut it into two other pieces, sorted by score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from .config import Fields, as_json

_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6  # of gguf.TokenType
_SPACE = "▁"  # what a space is in pieces


def rebuild_sentencepiece(fields: Fields) -> str:
    """The text of a tokenizer.json."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers

    keys = fields.with_prefix("tokenizer.ggml.")
    keys.require("tokens", "scores", "token_type")
    _refuse_rewriting(keys)
    pieces, scores, kinds = _columns(keys)
    prefixed = keys.boolean("add_space_prefix", True)
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


# GGUF's names of how text is cut before merging. Of others nothing is known, and a guess would give other tokens.
_GPT2 = ("default", "gpt-2")
_DIGITS = ("smollm", "refact", "starcoder", "command-r")  # as GPT-2's, each digit by itself; Granite's is refact
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "lfm2")
_QWEN2 = ("qwen2", "deepseek-r1-qwen")
_GPT4O = ("gpt-4o",)  # Phi-4-mini's
_TEKKEN = ("tekken",)  # that of newer Mistrals
_KINDS = _GPT2 + _DIGITS + _LLAMA3 + _QWEN2 + _GPT4O + _TEKKEN
_BOS_FIRST = _LLAMA3 + _TEKKEN  # of these it is the custom that every text begins with BOS

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS = {
    _LLAMA3: _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _REST,
    _QWEN2: _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _REST,
    _GPT4O: rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _REST,
    _TEKKEN: rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _REST,
}


def rebuild_tokenizer(fields: Fields, path: Path) -> str:
    """The text of a tokenizer.json."""
    return rebuild_sentencepiece(fields) if is_sentencepiece(fields) else _byte_level(fields, path)


def is_sentencepiece(fields: Fields) -> bool:
    return fields.string("tokenizer.ggml.model") == "llama"


def _byte_level(fields: Fields, path: Path) -> str:
    """BPE over bytes, from the vocabulary and the merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

    keys = fields.with_prefix("tokenizer.ggml.")
    kind, cut = keys.string("model"), keys.string("pre") or "default"
    if kind != "gpt2" or cut not in _KINDS:
        described = f"tokenizer.ggml.model = {kind}, tokenizer.ggml.pre = {cut}"
        raise UnsupportedError(
            f"{path} has a tokenizer that cannot be rebuilt ({described}); SentencePiece's BPE, model llama, and "
            f"byte-level BPE, model gpt2, of the kinds {', '.join(_KINDS)} can be. "
            "Export from the safetensors checkpoint, which has a tokenizer.json.",
            ["tokenizer.ggml.model" if kind != "gpt2" else "tokenizer.ggml.pre"],
        )
    keys.require("merges")
    tokens = keys.list_of("tokens", str)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [_pair(fields.where, merge, vocabulary) for merge in keys.list_of("merges", str)]
    # Words that are tokens are taken whole, in Llama 3's and newer Mistrals'.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut in _BOS_FIRST))
    if cut in _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_splitters(cut))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = keys.list_of("token_type", int)
    special = [t for t, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return str(tokenizer.to_str())


def _pair(where: str, merge: str, vocabulary: Mapping[str, int]) -> tuple[str, str]:
    """The two tokens of a merge. The tokenizers package takes the word of whoever calls it that they are there."""
    left, _, right = merge.partition(" ")
    if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
        raise FormatError(
            f"{where}: tokenizer.ggml.merges has {as_json(merge)}; expected two tokens and a space between them, which "
            "together are a token",
            code="merges",
        )
    return left, right


def special_tokens(fields: Fields) -> dict[str, str | bool]:
    """By the names they have in tokenizer_config.json."""
    keys = fields.with_prefix("tokenizer.ggml.")
    tokens = keys.list_of("tokens", str)
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    found: dict[str, str | bool] = {}
    for key, name in names.items():
        number = keys.token_id(f"{key}_token_id")
        if number is not None and number < len(tokens):
            found[name] = tokens[number]
    # Where the file does not say, it is the custom of the kind of tokenizer.
    custom = is_sentencepiece(fields) or keys.string("pre") in _BOS_FIRST
    found["add_bos_token"] = keys.boolean("add_bos_token", custom)
    return found


def _splitters(kind: str) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    words = next((words for kinds, words in _WORDS.items() if kind in kinds), None)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
    if words is not None:
        return [pre_tokenizers.Split(Regex(words), behavior="isolated"), byte_level]
    return [pre_tokenizers.Digits(individual_digits=True), byte_level] if kind in _DIGITS else [byte_level]
