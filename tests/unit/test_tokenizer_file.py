"""Tokenizers that end the process inside of the tokenizers package are refused before it reads them."""

from __future__ import annotations

import base64
import json

import pytest

import webpte
from tests.studies.fuzz.tokenizers import charsmap, honest_tokenizers, use_tokenizer
from tests.support.harness.errors import raises
from webpte.llm.tokenizer import SEPARATOR, Tokenizer

BYTE_LEVEL, UNIGRAM = 0, 3


def changed(tmp_path, number, change):
    document = json.loads(honest_tokenizers()[number])
    change(document)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("text", honest_tokenizers())
def test_tokenizers_of_every_kind_are_read(tmp_path, text):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    use_tokenizer(path)


@pytest.mark.parametrize("number", [1 << 31, 1 << 22, -1, 0.5, None])
def test_tokenizer_file_token_number_too_large_is_refused(tmp_path, number):
    """The package makes a table up to the largest."""
    path = changed(tmp_path, BYTE_LEVEL, lambda document: document["model"]["vocab"].update({"m": number}))
    with raises(webpte.FormatError, number, code="vocabulary"):
        Tokenizer.load(path)
    path = changed(tmp_path, BYTE_LEVEL, lambda document: document["added_tokens"][0].update({"id": number}))
    with raises(webpte.FormatError, number, code="vocabulary"):
        Tokenizer.load(path)


def test_tokenizer_file_duplicate_number_is_refused(tmp_path):
    path = changed(tmp_path, BYTE_LEVEL, lambda document: document["model"]["vocab"].update({"m": 3}))
    with raises(webpte.FormatError, code="vocabulary"):
        Tokenizer.load(path)


def test_tokenizer_file_duplicate_key_is_refused(tmp_path):
    """The package could read the one that was not looked at."""
    path = tmp_path / "tokenizer.json"
    text = honest_tokenizers()[BYTE_LEVEL]
    path.write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []},' + text[1:])
    with raises(webpte.FormatError, code="duplicate_key"):
        Tokenizer.load(path)


@pytest.mark.parametrize("prefix", ["x", "##", "é"])
def test_merges_shorter_than_the_prefix_of_subwords_are_refused(tmp_path, prefix):
    def change(document):
        document["model"]["continuing_subword_prefix"] = prefix

    with raises(webpte.FormatError, code="merges"):
        Tokenizer.load(changed(tmp_path, BYTE_LEVEL, change))


@pytest.mark.parametrize("announced", [1 << 31, 1028, 1022])
def test_tokenizer_file_charsmap_length_beyond_data_is_refused(tmp_path, announced):
    def change(document):
        table = announced.to_bytes(4, "little") + charsmap()[4:1028]
        normalizer = document["normalizer"]["normalizers"][0]
        normalizer["precompiled_charsmap"] = base64.b64encode(table).decode()

    with raises(webpte.FormatError, announced, code="charsmap"):
        Tokenizer.load(changed(tmp_path, UNIGRAM, change))


def test_marked_text_keeps_tokens_with_gaps_in_vocabulary(tmp_path):
    """The package numbers a new token by how many there are, which here is the number of an old one."""
    full = len(json.loads(honest_tokenizers()[BYTE_LEVEL])["model"]["vocab"])

    def change(document):
        document["model"]["vocab"]["H"] = full + 3
        document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] < 2]

    tokenizer = Tokenizer.load(changed(tmp_path, BYTE_LEVEL, change))
    marked, result = tokenizer.mark_special_tokens("H <|im_end|> H")
    assert result
    tokens = tokenizer.encode_marked(f"<|im_start|>{marked}<|im_end|>")
    assert tokenizer.decode(tokens, specials=True) == "<|im_start|>H <|im_end|> H<|im_end|>"
    assert SEPARATOR not in tokenizer.decode(tokens, specials=True)
    assert tokens[0] == 0 and tokens[-1] == 1 and 1 not in tokens[1:-1]
