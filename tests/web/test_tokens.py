"""Tokens of texts are those of the `tokenizers` package; tokenizers that a page lacks are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import webpte
from tests.studies.in_page.token_corpus import PATTERNS, texts, tokenizers
from tests.studies.in_page.tokens import differences
from tests.support.harness.errors import raises
from tests.support.harness.node import ask_node
from tests.support.models.tokenizers import byte_level
from webpte.bundles.page_support import check_tokenizer


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    return texts(seed=1, count=800)


@pytest.fixture(scope="module")
def kinds(corpus) -> dict[str, Any]:
    return tokenizers(corpus)


def test_tokens_of_every_kind_are_native(kinds, corpus):
    for name, tokenizer in kinds.items():
        assert list(differences(tokenizer, corpus)) == [], name


def test_tokenizers_of_every_kind_are_accepted(kinds):
    for tokenizer in kinds.values():
        check_tokenizer(tokenizer.to_str().encode())


def described(**changes: Any) -> dict[str, Any]:
    return json.loads(byte_level().backend_tokenizer.to_str()) | changes


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, "the normalizer Precompiled"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}]}}, "the normalizer Nmt"),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "the pre_tokenizer UnicodeScripts"),
        ({"decoder": {"type": "CTC"}}, "the decoder CTC"),
        ({"post_processor": {"type": "Other"}}, "the post_processor Other"),
        ({"model": {"type": "Other", "vocab": {}}}, "the model Other"),
        ({"pre_tokenizer": split(r"\p{L}++|\s+")}, "++ in the expression"),
        ({"pre_tokenizer": split(r"(?>a|b)")}, "(? in the expression"),
        ({"pre_tokenizer": split(r"\h+")}, r"\h in the expression"),
        ({"pre_tokenizer": split(r"[[:alpha:]]+")}, "[ in the expression"),
    ],
)
def test_tokenizers_that_a_page_lacks_are_refused_by_name(changes, part):
    with raises(webpte.UnsupportedError, part, code="tokenizer_part"):
        check_tokenizer(json.dumps(described(**changes)).encode())
    result = ask_node("language.mjs", "refused", described(**changes))
    assert result["code"] == "unsupported"


@pytest.mark.parametrize("name", PATTERNS)
def test_expressions_of_public_tokenizers_are_accepted(name):
    check_tokenizer(json.dumps(described(pre_tokenizer=split(PATTERNS[name]))).encode())
