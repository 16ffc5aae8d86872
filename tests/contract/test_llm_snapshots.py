"""A language model's snapshots: refused ones leave it as it was, good ones continue."""

from __future__ import annotations

import json

import pytest

import webpte
from tests.support.harness.devices import session_of
from tests.support.harness.errors import raises
from tests.support.models.tiny_llm import CONTEXT, VOCAB, tokens_of, write_tiny_llm
from webpte.llm import LLM
from webpte.runtime.state import read_state, write_state

PROMPT = list(range(1, 30))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with LLM.load(write_tiny_llm(tmp_path_factory.mktemp("llm")) / "tiny.pte") as model:
        model.stop_tokens = frozenset()
        yield model


@pytest.fixture
def talk(shared):
    return shared.sequence()


def ask(talk, count=8):
    return tokens_of(talk.generate(tokens=PROMPT, max_new_tokens=count, tokens_per_submit=1))


def test_restore_method_snapshot_is_refused(talk, tmp_path):
    """The state of an empty cache, without a note: taken, the cached prompt would answer from zeros."""
    talk.llm.engine.runner.method.reset()
    talk.llm.engine.runner.method.snapshot(tmp_path / "bare")
    talk.llm.reset_prefix_cache()
    want = ask(talk)
    talk.rewind(7)
    with raises(webpte.FormatError, "bare", code="not_a_snapshot"):
        talk.restore(tmp_path / "bare")
    again = talk.generate(tokens=PROMPT, max_new_tokens=8)
    assert tokens_of(again) == want and again.usage.reused_tokens == len(PROMPT) - 1


NOTES = {
    "a number": b"5",
    "null": b"[null]",
    "a mapping": b'{"a": 1}',
    "a text": b'"123"',
    "true": b"[true]",
    "a fraction": b"[1.5]",
    "infinity": b"[1e400]",
    "NaN": b"[NaN]",
    "lists in lists": b"[[1]]",
    "very deep": b"[" * 100_000,
    "no text": b"\xff\xfe",
    "negative": b"[-1, 5]",
    "outside the vocabulary": json.dumps([VOCAB]).encode(),
    "longer than the context": json.dumps([1] * (CONTEXT + 1)).encode(),
    "nothing": b"",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_restore_invalid_note_refused_model_unchanged(talk, tmp_path, note):
    want = ask(talk)
    talk.snapshot(tmp_path / "good")
    owner, sizes = talk.llm.fingerprint, talk.llm.engine.runner.sizes(talk.position)
    buffers, _ = read_state(tmp_path / "good", owner, sizes)
    zeros = [memoryview(bytes(len(data))) for data in buffers]
    write_state(tmp_path / "bad", owner, zeros, note)
    position = talk.position
    with pytest.raises(webpte.FormatError):
        talk.restore(tmp_path / "bad")
    assert talk.position == position and ask(talk) == want


def test_restore_interrupted_drops_overwritten_prefix(talk, tmp_path, monkeypatch):
    want = ask(talk)
    talk.snapshot(tmp_path / "good")
    session = session_of(talk.llm.engine.runner.method)
    real = session.gpu.write
    written = []

    def write(*arguments):
        written.append(1)
        if len(written) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(session.gpu, "write", write)
    with pytest.raises(KeyboardInterrupt):
        talk.restore(tmp_path / "good")
    monkeypatch.undo()
    assert talk.position == 0 and ask(talk) == want
    talk.restore(tmp_path / "good")
    assert talk.position == len(PROMPT) + 7 and ask(talk) == want
