"""Tokenizers of every kind that a bundle takes, trained small, and texts over all of Unicode."""

# ruff: noqa: E501 - tables of texts

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

BLOCK = 0x80  # code points; blocks of Unicode begin at multiples of 16, most of them at multiples of this
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "Llama 3": _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST,
    "Qwen": _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST,
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTERS}*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_LETTERS}+{_ENDINGS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "DeepSeek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
_PIECES = [
    "hello", " the", "don't", "WE'LL", "I'M", "ſ'ſ", "\u212a", "ß", "İ", "Σς", "ﬁ", "ﬄ", "Ⅷ", "½", "²", "٣", "१२", "123", "1.5e-10", "0x1F", "e\u0301", "x\u0300\u0301",
    "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "🇩🇪", "👍🏽", " ", "  ", "\n", "\r\n", "\t", "\u0085", "\u00a0", "\u2028", "\u3000", "\ufeff", "\u200b", "\x00", "\x1c", "\x7f", "\x9f", "\ufffd",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "<s>", "</s>", "[CLS]", "[SEP]", "[UNK]", "<0x41>", "<0xE2>", "▁", "▁a", "<tool>", "foo", "foofoo", "ｆｕｌｌ", "##", "</w>", "Ġ", "Ċ",
    "def f(x):\n    return x\n", "{\"a\": [1, null]}", "http://a.b/c?d=e#g", "....", "---", "a_b", "中文，测试。", "日本語", "한국어", "\u1112\u1161\u11ab", "ไทย", "हिन्दी", "עברית", "العربية", "𝔘𝔫𝔦", "constructor", "__proto__",
]  # fmt: skip


def characters() -> list[list[str]]:
    """Return the assigned characters of every block that has any. Surrogates are not characters."""
    results = []
    for start in range(0, 0x110000, BLOCK):
        block = [chr(code) for code in range(start, start + BLOCK)]
        if assigned := [each for each in block if unicodedata.category(each) not in ("Cn", "Cs")]:
            results.append(assigned)
    return results[:-1] if results[-1][0] > "\U00100000" else results


def texts(seed: int, count: int) -> list[str]:
    """Texts of one block, of several, and of pieces that tokenizers treat in a way of their own."""
    chance, blocks = random.Random(seed), characters()
    results = []
    for number in range(count):
        block = blocks[number % len(blocks)]
        words: list[Callable[[], str]] = [
            lambda block=block: "".join(chance.choices(block, k=chance.randint(1, 6))),  # type: ignore[misc]
            lambda: chance.choice(_PIECES),
            lambda: "".join(chance.choice(chance.choice(blocks)) for _ in range(3)),
        ]
        parts = [chance.choices(words, (4, 4, 1))[0]() for _ in range(chance.randint(1, 8))]
        results.append(chance.choice(("", "", " ")).join(parts))
    return results


def _byte_level(
    corpus: list[str], split: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def _by_pattern(corpus: list[str], pattern: str, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _byte_level(
        corpus, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_]), normalizer
    )


def _sentence_piece(corpus: list[str]) -> dict[str, Tokenizer]:
    """BPE without pre-tokenizer, whose unknown characters are bytes: Llama 2's and Gemma's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=names, limit_alphabet=400, show_progress=False)
    tokenizer.train_from_iterator([line.replace(" ", "▁") for line in corpus], trainer)
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [each for each in described["added_tokens"] if not each["content"].startswith("<0x")]
    results = {name: Tokenizer.from_str(json.dumps(described)) for name in ("Llama 2", "Gemma", "Metaspace")}
    space = normalizers.Replace(" ", "▁")
    ends = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    results["Llama 2"].normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space])
    results["Llama 2"].decoder = decoders.Sequence([*ends, decoders.Strip(" ", 1, 0)])
    results["Llama 2"].post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    results["Gemma"].normalizer, results["Gemma"].decoder = space, decoders.Sequence(ends)
    results["Metaspace"].pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    results["Metaspace"].decoder = decoders.Sequence([*ends, decoders.Strip(" ", 1, 0)])
    return results


def _pieces(corpus: list[str]) -> list[tuple[str, float]]:
    """Pieces of texts with random scores; many characters are in none."""
    chance, result = random.Random(7), {"<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0}
    for line in corpus:
        text = "▁" + line.replace(" ", "▁")
        start = chance.randrange(len(text))
        piece = text[start : start + chance.randint(1, 5)]
        result.setdefault(piece, -chance.uniform(1, 12) - len(piece))
    return list(result.items())


def _words(corpus: list[str]) -> dict[str, Tokenizer]:
    """WordPiece, Unigram and WordLevel: encoders' tokenizers."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    bert.train_from_iterator(
        corpus, trainers.WordPieceTrainer(vocab_size=6000, special_tokens=names, show_progress=False)
    )
    bert.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    cased = Tokenizer.from_str(bert.to_str())
    cased.normalizer = normalizers.BertNormalizer(lowercase=False)
    cased.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    unigram = Tokenizer(models.Unigram(_pieces(corpus), unk_id=2))
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    level = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    level.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    level.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits()]
    )
    level.train_from_iterator(
        corpus, trainers.WordLevelTrainer(vocab_size=4000, special_tokens=names, show_progress=False)
    )
    return {"BERT": bert, "BERT cased": cased, "Unigram": unigram, "WordLevel": level}


def tokenizers(corpus: list[str]) -> dict[str, Tokenizer]:
    """By name, each trained on the texts, lest exotic characters be all bytes."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    results = {"GPT-2": _byte_level(corpus, plain), "SmolLM2": _byte_level(corpus, digits)}
    results |= {name: _by_pattern(corpus, PATTERNS[name]) for name in ("Llama 3", "o200k", "DeepSeek")}
    results["Qwen"] = _by_pattern(corpus, PATTERNS["Qwen"], normalizers.NFC())
    roberta = _byte_level(corpus, pre_tokenizers.ByteLevel(add_prefix_space=True))
    roberta.post_processor = processors.RobertaProcessing(("<|im_end|>", 1), ("<|im_start|>", 0))
    added = Tokenizer.from_str(results["Qwen"].to_str())
    added.add_tokens(
        [
            AddedToken("<tool>", lstrip=True, rstrip=True),
            AddedToken("foo", single_word=True),
            AddedToken("ｆｕｌｌ", normalized=True),
        ]
    )
    added.add_special_tokens([AddedToken("<s>", lstrip=True), AddedToken("[SEP]", rstrip=True)])
    clip = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    clip.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    clip.pre_tokenizer, clip.decoder = pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=2500, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=700, show_progress=False
    )
    clip.train_from_iterator(corpus, trainer)
    return {**results, "RoBERTa": roberta, "added": added, "CLIP": clip, **_sentence_piece(corpus), **_words(corpus)}
