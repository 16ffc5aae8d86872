"""A language model's snapshots: refused ones leave it as it was, good ones continue."""

from __future__ import annotations

import json

import pytest

import webpte
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
def llm(shared):
    shared.reset()
    return shared


def ask(llm, count=8):
    return tokens_of(llm.generate(tokens=PROMPT, max_new_tokens=count, tokens_per_submit=1))


def test_a_methods_snapshot_is_none_of_a_model(llm, tmp_path):
    """The state of an empty cache, without a note: taken, the cached prompt would answer from zeros."""
    llm.method.reset()
    llm.method.snapshot(tmp_path / "bare")
    want = ask(llm)
    llm.rewind(7)
    with pytest.raises(webpte.FormatError, match="no snapshot of a language model"):
        llm.restore(tmp_path / "bare")
    again = llm.generate(tokens=PROMPT, max_new_tokens=8)
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
def test_an_impossible_note_is_refused_and_the_model_is_as_it_was(llm, tmp_path, note):
    want = ask(llm)
    llm.snapshot(tmp_path / "good")
    owner, sizes = llm.method._fingerprint(), llm.method._session.state_sizes()
    buffers, _ = read_state(tmp_path / "good", owner, sizes)
    zeros = [memoryview(bytes(len(data))) for data in buffers]
    write_state(tmp_path / "bad", owner, zeros, note)
    position = llm.position
    with pytest.raises(webpte.FormatError):
        llm.restore(tmp_path / "bad")
    assert llm.position == position and ask(llm) == want


def test_an_interrupted_restore_forgets_what_it_may_have_overwritten(llm, tmp_path, monkeypatch):
    want = ask(llm)
    llm.snapshot(tmp_path / "good")
    session = llm.method._session
    real = session.gpu.write
    written = []

    def write(*arguments):
        written.append(1)
        if len(written) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(session.gpu, "write", write)
    with pytest.raises(KeyboardInterrupt):
        llm.restore(tmp_path / "good")
    monkeypatch.undo()
    assert llm.position == 0 and ask(llm) == want
    llm.restore(tmp_path / "good")
    assert llm.position == len(PROMPT) + 7 and ask(llm) == want
