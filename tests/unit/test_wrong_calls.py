"""The judge of wrong calls rejects error messages that do not help a caller."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness import wrong_calls
from tests.support.harness.wrong_calls import Wrong, check, helps


def refuse(message, kind=webpte.InputError):
    raise kind(message)


def test_check_helpful_refusal_passes():
    text = check(Wrong(lambda: refuse("memory is a number of bytes, at least 1, not -3"), "memory", webpte.InputError))
    assert text == "memory is a number of bytes, at least 1, not -3"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: 3, "was not refused"),
        (lambda: refuse("it is a number of bytes, at least 1"), "does not name"),
        (lambda: refuse("memory: -3 'so many words that were given by the caller'"), "nothing but what was given"),
    ],
)
def test_check_unhelpful_refusal_fails(call, reason):
    with pytest.raises(AssertionError, match=reason):
        check(Wrong(call, "memory"))


def test_check_untyped_error_passes_through():
    with pytest.raises(TypeError):
        check(Wrong(lambda: refuse("memory is a number of bytes", TypeError), "memory"))
    with pytest.raises(webpte.DataError):
        check(Wrong(lambda: refuse("memory is a number of bytes", webpte.DataError), "memory", webpte.InputError))


def test_check_slow_refusal_fails(monkeypatch):
    def call():
        for _ in range(100):
            len("memory")
        refuse("memory is a number of bytes")

    monkeypatch.setattr(wrong_calls, "MAX_CALLS", 100)
    with pytest.raises(AssertionError, match="took"):
        check(Wrong(call, "memory"))


def test_wrong_commands_are_judged_by_exit_code_and_message(tmp_path):
    assert "missing.pte" in check(Wrong(("inspect", str(tmp_path / "missing.pte")), "missing.pte"))
    assert check(Wrong(("inspect", "x.pte", "--nonsense"), "--nonsense"))
    with pytest.raises(AssertionError, match="exit code 0"):
        check(Wrong(("--version",), "--version"))
    with pytest.raises(AssertionError, match="no DeviceError"):
        check(Wrong(("inspect", str(tmp_path / "missing.pte")), "missing.pte", webpte.DeviceError))


def test_wrong_call_judge_counts_own_words_of_message():
    assert helps("tune is one of cached, auto, off, not 'x'", "tune")
    assert not helps("tune: 'x' 12 refused", "tune")
