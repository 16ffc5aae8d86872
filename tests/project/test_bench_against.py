"""`python -m bench.against` with two made-up checkouts, one of which takes its time."""

from __future__ import annotations

import json

import pytest

from bench import against

PACKAGE = """
import time
from types import SimpleNamespace

class Error(Exception): pass

now = 0.0  # its own clock: the machine's makes no difference
time.perf_counter = lambda: now

def spend(seconds):
    global now
    now += seconds

class Method:
    inputs = {inputs}
    def run(self, args):
        assert args[0].shape in ((1, 1), (1, 31))
        spend({seconds} * (3 if args[0].size > 1 else 1))

def load(path):
    spend({seconds})
    return SimpleNamespace(method=lambda name: Method())
"""
CACHED = '(SimpleNamespace(bound=(1, 31), dtype="i64"), SimpleNamespace(bound=(1,), dtype="i64"))'
PLAIN = '(SimpleNamespace(bound=(1, 31), dtype="f32"),)'
NO_TOKENIZER = """
from webpte import Error
class LLM:
    @classmethod
    def load(cls, path): raise Error("no tokenizer")
"""


@pytest.fixture
def checkout(tmp_path):
    def make(name, seconds, inputs=CACHED):
        package = tmp_path / name / "src" / "webpte"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(PACKAGE.format(seconds=seconds, inputs=inputs))
        (package / "llm.py").write_text(NO_TOKENIZER)
        return tmp_path / name

    return make


def test_against_slower_checkout_shows_ratio(checkout, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(against, "REPOSITORY", checkout("new", 0.02))
    old = checkout("old", 0.01)
    assert against.main([str(old), str(tmp_path / "model.pte"), "--turns", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert set(rows) == {"model load", "model prefill", "model decode"}  # no tokenizer, so nothing to generate with
    assert rows["model decode"]["turns"] == 3
    assert [row["ratio"] for row in rows.values()] == pytest.approx([2, 2, 2])
    assert rows["model prefill"]["old"] == pytest.approx(3 * rows["model decode"]["old"])


def test_against_program_without_cache_measures_call(checkout, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(against, "REPOSITORY", checkout("new", 0.01, PLAIN))
    old = checkout("old", 0.02, PLAIN)
    assert against.main([str(old), str(tmp_path / "model.pte"), "--turns", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert set(rows) == {"model load", "model call"}
    assert rows["model call"]["ratio"] == pytest.approx(0.5)


def test_against_failing_checkout_is_named(checkout, tmp_path, monkeypatch):
    monkeypatch.setattr(against, "REPOSITORY", tmp_path / "nothing")
    broken = checkout("old", 0.0)
    (broken / "src" / "webpte" / "__init__.py").write_text("raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="ended with 3 when asked for load"):
        against.main([str(broken), str(tmp_path / "model.pte"), "--turns", "1"])
