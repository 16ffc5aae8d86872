"""Published tokenizers, rebuilt from the keys of GGUF files, have the ids and texts of their tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.harness.gate import slow_but
from tests.support.models.published_tokenizers import PUBLISHED, gguf_keys, hard_texts
from webpte.checkpoints.config import Fields
from webpte.checkpoints.gguf_tokenizer import rebuild_tokenizer
from webpte.llm import Tokenizer

TEXTS = 311
BY_NAME = {published.name: published for published in PUBLISHED}


@pytest.mark.parametrize("name", slow_but(["llama2", "qwen3"], list(BY_NAME)))
def test_ids_and_texts_equal_tokenizer_json(name, tmp_path):
    keys, source = gguf_keys(BY_NAME[name])
    fields = Fields("x.gguf", {f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    (tmp_path / "published.json").write_text(json.dumps(source))
    (tmp_path / "rebuilt.json").write_text(rebuild_tokenizer(fields, Path("x.gguf")))
    published, rebuilt = (Tokenizer.load(tmp_path / f"{each}.json") for each in ("published", "rebuilt"))
    assert rebuilt.special_ids == published.special_ids
    for text in hard_texts(TEXTS, [token["content"] for token in source["added_tokens"]][:200], name):
        for parse_special in (False, True):
            ids = published.encode(text, parse_special=parse_special)
            assert rebuilt.encode(text, parse_special=parse_special) == ids, (text, parse_special)
            for specials in (False, True):
                assert rebuilt.decode(ids, specials=specials) == published.decode(ids, specials=specials), (ids, text)
