"""Tokenizers out of downloaded files: what would panic, grow or abort in the `tokenizers` package is a typed error."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import webpte
from tests.support.harness.children import SRC
from tests.support.harness.errors import raises
from webpte.llm import Tokenizer


def plain() -> dict[str, Any]:
    """Bytes as tokens, and nothing else."""
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, pre_tokenizers

    vocabulary = {text: number for number, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Inner(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    results: dict[str, Any] = json.loads(inner.to_str())
    return results


def written(folder, **changes):
    (folder / "tokenizer.json").write_text(json.dumps(plain() | changes))
    return folder / "tokenizer.json"


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


TENFOLD = replace({"String": "x"}, "x" * 10)
PIECES = [{"Sequence": {"id": "A", "type_id": 0}}] * 100
REFUSED = {
    "a bomb of replacements": ({"normalizer": sequence(*[TENFOLD] * 9)}, None, ["normalizer", "1e+09 times"]),
    "sequences in sequences": (
        {"normalizer": sequence(sequence(TENFOLD), sequence(TENFOLD))},
        "",
        ["normalizer", "100 times"],
    ),
    "a long replacement": ({"normalizer": replace({"Regex": "a"}, "b" * 1000)}, None, ["normalizer", "1000 times"]),
    "nothing replaced": ({"normalizer": replace({"String": ""}, "x")}, "empty_pattern", ["normalizer"]),
    "many parts": ({"normalizer": sequence(*[{"type": "NFC"}] * 100)}, None, ["normalizer", "101 parts"]),
    "a long beginning": ({"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}}, None, ["normalizer", 10**6]),
    "a decoder that grows": (
        {"decoder": {"type": "Sequence", "decoders": [TENFOLD, TENFOLD]}},
        "",
        ["decoder", "3 parts", "100 times"],
    ),
    "the text, again and again": (
        {"post_processor": {"type": "TemplateProcessing", "single": PIECES, "pair": PIECES, "special_tokens": {}}},
        "",
        ["post_processor", "100 pieces"],
    ),
    "junk that is precompiled": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "charsmap",
        ["tokenizer.json"],
    ),
}


@pytest.mark.parametrize(("changes", "code", "values"), REFUSED.values(), ids=REFUSED)
def test_tokenizer_unbounded_growth_is_refused(tmp_path, changes, code, values):
    with raises(webpte.FormatError, *values, code=code):
        Tokenizer.load(written(tmp_path, **changes)).encode("xa")


def test_tokenizer_panic_raises_typed_error(tmp_path):
    tokenizer = Tokenizer.load(written(tmp_path, normalizer=replace({"Regex": "(a+)+$"}, "x")))
    with raises(webpte.FormatError, code="encode"):
        tokenizer.encode("a" * 40 + "b")


def test_padding_and_truncation_are_left_out(tmp_path):
    padding = {
        "strategy": {"Fixed": 300_000_000},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "x",
    }
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    tokenizer = Tokenizer.load(written(tmp_path, padding=padding, truncation=truncation))
    assert len(tokenizer.encode("hello")) == 5


@pytest.mark.parametrize("contents", ["", "[" * 100_000, "[]", "{}", "\x00"])
def test_tokenizer_invalid_file_raises_typed_error(tmp_path, contents):
    (tmp_path / "tokenizer.json").write_text(contents)
    with raises(webpte.FormatError, tmp_path / "tokenizer.json", code="not_a_tokenizer"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_tokenizer_invalid_text_or_token_raises_typed_error(tmp_path):
    tokenizer = Tokenizer.load(written(tmp_path))
    with raises(webpte.InputError, "ud800", code="invalid_utf8"):
        tokenizer.encode("\ud800")
    with raises(webpte.FormatError, code="decode"):
        tokenizer.decode([-1])


def test_ordinary_tokenizers_are_taken(tmp_path):
    ordinary = sequence(
        {"type": "NFKC"},
        {"type": "Prepend", "prepend": "_"},
        replace({"String": " "}, "_"),
        replace({"Regex": "_{2,}"}, "_"),
    )
    assert Tokenizer.load(written(tmp_path, normalizer=ordinary)).decode([]) == ""
    tokenizer = Tokenizer.load(written(tmp_path))
    assert tokenizer.decode(tokenizer.encode("hello wörld")) == "hello wörld"


def test_tokenizer_interrupt_passes_through(tmp_path, monkeypatch):
    tokenizer = Tokenizer.load(written(tmp_path))

    class Interrupted:
        def encode(self, *arguments: Any, **options: Any) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer, "backend_tokenizer", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode("x", parse_special=True)


def test_tokenizer_bomb_raises_error_in_bounded_memory(tmp_path):
    """As a user meets it, with little memory to spare."""
    path = written(tmp_path, normalizer=sequence(*[TENFOLD] * 9))
    code = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
sys.path.insert(0, {str(SRC)!r})
import webpte
from webpte.llm import Tokenizer
try:
    Tokenizer.load(sys.argv[1]).encode("x")
except webpte.FormatError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["refused"], done.stderr[-2000:]
