"""Rebuild a tokenizer.json from the keys of a GGUF file: byte-level BPE and SentencePiece BPE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from ..fields import as_json
from ..llm.tokenizer_formats import (
    CONTRACTIONS,
    CONTROL,
    LLAMA3_WORDS,
    NORMAL,
    USER_DEFINED,
    WHITESPACE,
    sentencepiece_bpe,
)
from .config import Fields

SPACE = "\u2581"  # in place of spaces, in the tokens of Gemma 4
UNMERGED = -1  # beside the types of tokens: a normal token that no merge makes, such as <h1> of Gemma 4
_COLUMN_TYPES = {"tokens": (str,), "scores": (float, int), "token_type": (int,)}
_COLUMN_NOUNS = {"tokens": "tokens", "scores": "scores", "token_type": "types"}
_TOKENIZER_HINT = "Export from the safetensors checkpoint, which has a tokenizer.json."


def rebuild_sentencepiece(fields: Fields) -> str:
    """Return the contents of a tokenizer.json."""
    keys = fields.with_prefix("tokenizer.ggml.")
    _refuse_rewriting(keys)
    pieces, scores, kinds = _columns(keys, "tokens", "scores", "token_type")
    prefixed, unknown = keys.boolean("add_space_prefix", True), keys.token_id("unknown_token_id")
    return str(sentencepiece_bpe(pieces, scores, kinds, unknown, prefixed=prefixed).to_str())


def _refuse_rewriting(keys: Fields) -> None:
    """Refuse tokenizers that rewrite the text in ways that the file does not describe."""
    refused = {
        f"tokenizer.ggml.{key}": why
        for key, why in (
            ("precompiled_charsmap", "characters are replaced"),
            ("remove_extra_whitespaces", "spaces are removed"),
        )
        if keys.get(key)
    }
    if keys.values.get("general.architecture") == "phi3":
        refused["general.architecture"] = "some special tokens of Phi-3 include the spaces after them"
    if refused:
        reasons = ", ".join(f"{key}: {why}" for key, why in refused.items())
        raise UnsupportedError(
            f"{keys.where}: the tokenizer cannot be rebuilt ({reasons})",
            list(refused),
            code="tokenizer",
            hint=_TOKENIZER_HINT,
        )


def _columns(keys: Fields, *names: str) -> list[list[Any]]:
    """Return lists that have an entry for each token."""
    keys.require(*names)
    columns = [keys.list_of(name, *_COLUMN_TYPES[name]) for name in names]
    counts = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(counts.values())) > 1:
        raise FormatError(
            argument=f"{keys.where}: tokenizer.ggml",
            expected=f"lists of equal length: {', '.join(names)}",
            got=", ".join(f"{count} {_COLUMN_NOUNS[name]}" for name, count in counts.items()),
            code="tokenizer",
        )
    return columns


# GGUF's names of pre-tokenizers. Unknown ones are refused: a guess would give other tokens.
_GPT2 = ("default", "gpt-2")
_DIGITS = ("smollm", "refact", "starcoder", "command-r")  # as GPT-2, but each digit is separate; Granite has refact
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "lfm2")
_CL100K = ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe")  # the words of Llama 3; OLMo 2 and 3 have dbrx
_QWEN2 = ("qwen2", "deepseek-r1-qwen")
_QWEN35 = ("qwen35",)  # as Qwen2, but marks are part of words
_GPT4O = ("gpt-4o",)  # Phi-4-mini's
_TEKKEN = ("tekken",)  # that of newer Mistrals
_SEED = ("seed-coder",)  # Seed-OSS's
_KINDS = _GPT2 + _DIGITS + _LLAMA3 + _CL100K + _QWEN2 + _QWEN35 + _GPT4O + _TEKKEN + _SEED
_BOS_FIRST = _LLAMA3 + _TEKKEN  # with these, every text begins with BOS by default
_COMPOSED = _QWEN2 + _QWEN35 + ("command-r",)  # with these, texts are normalized to NFC

_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORDS = {
    _LLAMA3 + _CL100K: LLAMA3_WORDS,
    _SEED: CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+" + WHITESPACE,
    _QWEN2: CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + WHITESPACE,
    _QWEN35: CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + WHITESPACE,
    _GPT4O: rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + WHITESPACE,
    _TEKKEN: rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + WHITESPACE,
}


def rebuild_tokenizer(fields: Fields, path: Path) -> str:
    """Return the contents of a tokenizer.json."""
    if fields.string("tokenizer.ggml.model") == "gemma4":
        return _with_spaces(fields)
    return rebuild_sentencepiece(fields) if is_sentencepiece(fields) else _byte_level(fields, path)


def is_sentencepiece(fields: Fields) -> bool:
    return fields.string("tokenizer.ggml.model") == "llama"


def _byte_level(fields: Fields, path: Path) -> str:
    """Return a byte-level BPE tokenizer, from the vocabulary and the merges."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    keys = fields.with_prefix("tokenizer.ggml.")
    kind, cut = keys.string("model"), keys.string("pre") or "default"
    if kind != "gpt2" or cut not in _KINDS:
        raise UnsupportedError(
            items=["tokenizer.ggml.model" if kind != "gpt2" else "tokenizer.ggml.pre"],
            argument=f"{path}: tokenizer",
            expected=f"model = llama or gemma4, or model = gpt2 with pre = {', '.join(_KINDS)}",
            got=f"tokenizer.ggml.model = {kind}, tokenizer.ggml.pre = {cut}",
            code="tokenizer",
            hint=_TOKENIZER_HINT,
        )
    keys.require("merges")
    tokens, kinds = _columns(keys, "tokens", "token_type")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [_pair(fields.where, merge, vocabulary) for merge in keys.list_of("merges", str)]
    # Tokenizers of Llama 3 and newer Mistrals do not split words that are tokens.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut in _BOS_FIRST))
    if cut in _COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_splitters(cut))
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, kinds, special=(CONTROL,), plain=(USER_DEFINED,))
    return str(tokenizer.to_str())


def _with_spaces(fields: Fields) -> str:
    """Return the BPE tokenizer of Gemma 4: the merges are of characters, and unknown ones are bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    keys = fields.with_prefix("tokenizer.ggml.")
    keys.require("merges")
    tokens, kinds = _columns(keys, "tokens", "token_type")
    unknown = keys.token_id("unknown_token_id")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [_pair(fields.where, merge, vocabulary) for merge in keys.list_of("merges", str)]
    unk = tokens[unknown] if unknown is not None and unknown < len(tokens) else None
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    # Its files mark special tokens such as <|tool_call> as user-defined, and tokens that no merge makes as normal ones.
    merged = {left + right for left, right in merges}
    kinds = [
        UNMERGED if k == NORMAL and len(t) > 1 and t not in merged else k for t, k in zip(tokens, kinds, strict=True)
    ]
    _add_tokens(tokenizer, tokens, kinds, special=(CONTROL, USER_DEFINED), plain=(UNMERGED,))
    return str(tokenizer.to_str())


def _add_tokens(
    tokenizer: Any, tokens: Sequence[str], kinds: Sequence[int], *, special: Sequence[int], plain: Sequence[int]
) -> None:
    """Add the tokens that are found in texts before anything is merged; those of the types `special` as special."""
    from tokenizers import AddedToken

    columns = list(zip(tokens, kinds, strict=True))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, kind in columns if kind in plain])
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in columns if kind in special]
    )


def _pair(where: str, merge: str, vocabulary: Mapping[str, int]) -> tuple[str, str]:
    """Return the two tokens of a merge. They are checked because the tokenizers package does not."""
    left, _, right = merge.partition(" ")
    if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
        raise FormatError(
            f"{where}: tokenizer.ggml.merges has {as_json(merge)}; expected two tokens and a space between them, which "
            "together are a token",
            code="merges",
        )
    return left, right


def special_tokens(fields: Fields) -> dict[str, str | bool]:
    """Return the special tokens by their names in tokenizer_config.json."""
    keys = fields.with_prefix("tokenizer.ggml.")
    tokens = keys.list_of("tokens", str)
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    special: dict[str, str | bool] = {}
    for key, name in names.items():
        number = keys.token_id(f"{key}_token_id")
        if number is not None and number < len(tokens):
            special[name] = tokens[number]
    # If the key is absent, the kind of tokenizer decides.
    default = is_sentencepiece(fields) or keys.string("pre") in _BOS_FIRST
    special["add_bos_token"] = keys.boolean("add_bos_token", default)
    return special


def _splitters(kind: str) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    words = next((words for kinds, words in _WORDS.items() if kind in kinds), None)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
    if words is not None:
        return [pre_tokenizers.Split(Regex(words), behavior="isolated"), byte_level]
    return [pre_tokenizers.Digits(individual_digits=True), byte_level] if kind in _DIGITS else [byte_level]
