"""Tokenizers rebuilt from GGUF files cut and merge as those of transformers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.checkpoints.config import Fields
from webpte.checkpoints.gguf_tokenizer import rebuild_tokenizer
from webpte.llm import Tokenizer

TEXTS = (
    "The quick brown fox jumps over 12345 lazy dogs, doesn't it? I'LL say it'S SO.",
    "def f(x):\n\treturn x ** 2  # squares\n\n\n",
    "  leading, trailing  ",
    "Zażółć gęślą jaźń; déjà-vu. 東京は日本の首都です。 HTTPServer2Go/path/to",
    "e\u0301 is not \u00e9 until it is normalised",
    "<|im_start|>user\nhi<|im_end|>",
)


@pytest.fixture(scope="module")
def vocabulary() -> dict[str, Any]:
    """Learned from the texts, as a GGUF file has it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].__getitem__), "<|im_start|>", "<|im_end|>"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return {"tokens": tokens, "merges": merges, "token_type": [1] * (len(tokens) - 2) + [3, 3]}


def rebuilt(vocabulary: dict[str, Any], kind: str) -> Any:
    import tokenizers

    keys = {"model": "gpt2", **vocabulary, "pre": kind}
    fields = Fields("x.gguf", {f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    return tokenizers.Tokenizer.from_str(rebuild_tokenizer(fields, Path("x.gguf")))


WORDS = ("llama-bpe", "lfm2", "tekken", "gpt-4o", "gpt-2", "qwen2", "qwen35", "deepseek-r1-qwen", "dbrx", "smaug-bpe")


@pytest.mark.parametrize("kind", WORDS)
def test_tokens_equal_transformers(vocabulary, kind):
    from tokenizers import normalizers
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

    theirs, _ = convert_gguf_tokenizer("any", {**vocabulary, "tokenizer_type": "gpt2", "pre_tokenizer_type": kind})
    if "qwen" in kind:  # its own tokenizer.json normalizes
        theirs.normalizer = normalizers.NFC()
    ours = rebuilt(vocabulary, kind)
    for text in TEXTS:
        encoded = ours.encode(text, add_special_tokens=False).ids
        assert encoded == theirs.encode(text, add_special_tokens=False).ids, (kind, text)
        expected = normalizers.NFC().normalize_str(text) if "qwen" in kind else text
        assert ours.decode(encoded, skip_special_tokens=False) == expected


@pytest.mark.parametrize("kind", ["glm4", "chatglm-bpe"])
def test_words_of_glm_are_those_of_gpt_4(vocabulary, kind):
    for text in TEXTS:
        assert rebuilt(vocabulary, kind).encode(text).ids == rebuilt(vocabulary, "dbrx").encode(text).ids


def test_seed_coder_splits_digits_and_lines(vocabulary):
    cut = [text for text, _ in rebuilt(vocabulary, "seed-coder").pre_tokenizer.pre_tokenize_str("a12 (b);\n\nc's")]
    assert cut == ["a", "1", "2", "Ġ(", "b", ");", "ĊĊ", "c", "'s"]


@pytest.mark.parametrize("kind", ["smollm", "refact", "starcoder", "command-r"])
def test_digits_are_single_tokens_if_the_model_splits_them(vocabulary, kind):
    ours = rebuilt(vocabulary, kind)
    assert ours.encode("12345").tokens == ["1", "2", "3", "4", "5"]
    assert ours.encode(TEXTS[2]).ids == rebuilt(vocabulary, "gpt-2").encode(TEXTS[2]).ids


@pytest.mark.parametrize(("model", "kind"), [("gpt2", "viking"), ("t5", "default")])
def test_gguf_tokenizer_unknown_kind_is_refused(vocabulary, model, kind):
    keys = {**vocabulary, "model": model, "pre": kind}
    fields = Fields("x.gguf", {f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    with raises(webpte.UnsupportedError, f"model = {model}", f"tokenizer.ggml.pre = {kind}"):
        rebuild_tokenizer(fields, Path("x.gguf"))


def test_user_defined_tokens_are_found_in_texts_and_written(vocabulary):
    """As <think> of Qwen3: a token in every text, and no special one."""
    extended = {
        **vocabulary,
        "tokens": [*vocabulary["tokens"], "<think>", "</think>"],
        "token_type": [*vocabulary["token_type"], 4, 4],
    }
    ours = Tokenizer(rebuilt(extended, "qwen2"))
    think, end = (ours.token_id(text) for text in ("<think>", "</think>"))
    ids = ours.encode("<think>hm</think><|im_end|>")
    assert ids[0] == think and ids.count(end or -1) == 1 and ours.token_id("<|im_end|>") not in ids
    assert ours.decode(ids) == "<think>hm</think><|im_end|>"
    assert {ours.token_id("<|im_start|>"), ours.token_id("<|im_end|>")} == ours.special_ids


@pytest.mark.parametrize("types", [None, [1, 1, 3]])
def test_gguf_tokenizer_without_a_type_for_each_token_is_refused(vocabulary, types):
    """Its special tokens would be text, and prompts three times as long."""
    keys = {key: value for key, value in {**vocabulary, "token_type": types}.items() if value is not None}
    with raises(webpte.FormatError, "tokenizer.ggml", "token_type" if types is None else "3 types"):
        rebuilt(keys, "qwen2")
    with raises(webpte.FormatError, "tokenizer.ggml", "token_type" if types is None else "3 types"):
        rebuilt({**keys, "model": "gemma4"}, "")


def test_gemma_4_tokens_equal_transformers(tmp_path):
    """Its merges are of characters, spaces are tokens, and what has no token is bytes."""
    from tokenizers import Tokenizer, models, normalizers, trainers
    from transformers import GemmaTokenizer

    named = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<|tool_call>", "<h1>"]
    special = [*named, *(f"<0x{byte:02X}>" for byte in range(256))]
    learned = Tokenizer(models.BPE())
    learned.normalizer = normalizers.Replace(" ", "\u2581")
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, limit_alphabet=60, show_progress=False)
    learned.train_from_iterator(TEXTS * 3, trainer)
    model = json.loads(learned.to_str())["model"]
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    theirs = GemmaTokenizer(vocab=model["vocab"], merges=pairs, additional_special_tokens=["<|turn>", "<|tool_call>"])
    theirs.add_tokens(["<h1>"])
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = [3] * 6 + [4, 1] + [6] * 256 + [1] * (len(tokens) - 264)  # converters mark some special tokens as 4
    keys = {"model": "gemma4", "tokens": tokens, "merges": [" ".join(pair) for pair in pairs], "token_type": kinds}
    fields = Fields(
        "x.gguf", {f"tokenizer.ggml.{key}": value for key, value in {**keys, "unknown_token_id": 3}.items()}
    )
    ours = Tokenizer.from_str(rebuild_tokenizer(fields, Path("x.gguf")))
    added = ours.get_added_tokens_decoder().values()
    assert {token.content for token in added if token.special} == {*named[:7]}
    for text in (*TEXTS, "<|turn>user says  hi", "\U0001f642 and", "<h1><|tool_call> x</h1>"):
        encoded = ours.encode(text, add_special_tokens=False).ids
        assert encoded == theirs.encode(text, add_special_tokens=False), text
        assert ours.decode(encoded, skip_special_tokens=False) == text


# ---------------------------------------------------------------- SentencePiece


OWN = ["▁▁", "▁▁▁", "\n", "\n\n", "<user>"]
SPACED = (*TEXTS[:5], "a  b   c", "\t\n\n tabs\n", "<user> says [INST] hi", "aaaaaaa bbbb aaa", "🙂 and \x00", "")


@pytest.fixture(scope="module", params=[True, False], ids=["a space first", "as it is"])
def pieces(request) -> Any:
    """Return a model learned from the texts, with bytes for what it does not know, and symbols of its own."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 40),
        model_writer=model,
        model_type="bpe",
        vocab_size=500,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=request.param,
        user_defined_symbols=[] if request.param else OWN,
        control_symbols=["[INST]"],
        minloglevel=2,
    )
    return request.param, sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def keys_of(model: Any, prefixed: bool, **more: Any) -> Fields:
    """Return the keys that converters write for a tokenizer."""
    numbers = range(model.get_piece_size())
    tests = ((model.is_unknown, 2), (model.is_control, 3), (model.is_byte, 6))
    kinds = [next((kind for is_it, kind in tests if is_it(number)), 1) for number in numbers]
    texts = [model.id_to_piece(number) for number in numbers]
    kinds = [4 if text in OWN and not prefixed else kind for text, kind in zip(texts, kinds, strict=True)]
    keys = {
        "model": "llama",
        "tokens": [t.replace("▁", " ") if kind == 4 else t for t, kind in zip(texts, kinds, strict=True)],
        "scores": [model.get_score(number) for number in numbers],
        "token_type": kinds,
        "unknown_token_id": model.unk_id(),
        "add_space_prefix": prefixed,
    } | more
    return Fields("x.gguf", {f"tokenizer.ggml.{key}": value for key, value in keys.items()})


def test_tokens_equal_sentencepiece(pieces):
    import tokenizers

    prefixed, model = pieces
    ours = tokenizers.Tokenizer.from_str(rebuild_tokenizer(keys_of(model, prefixed), Path("x.gguf")))
    control = {number for number in range(model.get_piece_size()) if model.is_control(number)}
    assert Tokenizer(ours).special_ids == control  # and no user-defined piece
    for text in SPACED:
        if "[INST]" in text:  # SentencePiece takes no control symbols from texts, and models are spoken to by them
            assert ours.token_to_id("[INST]") in ours.encode(text).ids
            continue
        encoded = ours.encode(text, add_special_tokens=False).ids
        assert encoded == model.encode(text), text
        assert ours.decode(encoded, skip_special_tokens=False) == text


@pytest.mark.parametrize("key", ["precompiled_charsmap", "remove_extra_whitespaces"])
def test_gguf_tokenizer_rewriting_text_is_refused(pieces, key):
    prefixed, model = pieces
    with raises(webpte.UnsupportedError, f"tokenizer.ggml.{key}", "safetensors"):
        rebuild_tokenizer(keys_of(model, prefixed, **{key: [1]}), Path("x.gguf"))


def test_phi_3_is_refused_by_name(pieces):
    prefixed, model = pieces
    fields = keys_of(model, prefixed)
    with raises(webpte.UnsupportedError, "general.architecture", "Phi-3"):
        rebuild_tokenizer(Fields("x.gguf", {**fields.values, "general.architecture": "phi3"}), Path("x.gguf"))


def test_gguf_tokenizer_columns_differ_in_length_refused(pieces):
    prefixed, model = pieces
    with raises(webpte.FormatError, f"{model.get_piece_size()} tokens", "1 scores"):
        rebuild_tokenizer(keys_of(model, prefixed, scores=[0.0]), Path("x.gguf"))
