"""Files of state: whole, or refused before anyone looks inside."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from webpte.runtime.state import read_state, write_state

OWNER = "a" * 64
BUFFERS = [memoryview(bytes(range(40))), memoryview(b"\x07" * 8)]
SIZES = [40, 8]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "good"
    write_state(path, OWNER, BUFFERS, b"a note")
    return path


def test_state_file_round_trips(whole):
    result, note = read_state(whole, OWNER, SIZES)
    assert [bytes(data) for data in result] == [bytes(data) for data in BUFFERS] and note == b"a note"


@given(st.data())
def test_state_file_changed_bytes_are_refused(whole, tmp_path_factory, data):
    good = whole.read_bytes()
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "splice"]))
    at = data.draw(st.integers(0, len(good) - 1))
    if kind == "flip":
        bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    elif kind == "cut":
        bad = good[:at]
    elif kind == "grow":
        bad = good[:at] + data.draw(st.binary(min_size=1, max_size=64)) + good[at:]
    else:
        bad = good[:at] + data.draw(st.binary(max_size=16)) + good[at + 1 :]
    if bad == good:
        return
    path = whole.with_name("bad")
    path.write_bytes(bad)
    with pytest.raises((webpte.FormatError, webpte.DataError)):
        read_state(path, OWNER, SIZES)


def test_state_file_errors_state_reason(whole, tmp_path):
    good = whole.read_bytes()
    size = f" {len(good)}"
    cases: tuple[tuple[type[webpte.Error], str, list[str], bytes], ...] = (
        (webpte.FormatError, "truncated", [f" {len(good) - 1} bytes", size], good[:-1]),
        (webpte.FormatError, "too_long", [f" {len(good) + 1} bytes", size], good + b"x"),
        (webpte.FormatError, "hash_mismatch", [], good[:120] + bytes([good[120] ^ 1]) + good[121:]),
        (webpte.FormatError, "unknown_version", [], b"webpte state 1\n\0" + good[16:]),
        (webpte.FormatError, "bad_magic", [], b"hello"),
        (webpte.DataError, "other_program", [], good[:16] + b"b" * 64 + good[80:]),
    )
    for kind, code, expected, contents in cases:
        (tmp_path / "bad").write_bytes(contents)
        with raises(kind, tmp_path / "bad", *expected, code=code):
            read_state(tmp_path / "bad", OWNER, SIZES)
    with raises(webpte.DataError, "2 buffers", " 1", code="buffer_sizes"):
        read_state(whole, OWNER, [48])
    with raises(webpte.FormatError, tmp_path, code="not_regular_file"):
        read_state(tmp_path, OWNER, SIZES)
    os.mkfifo(tmp_path / "pipe")
    with raises(webpte.FormatError, tmp_path / "pipe", code="not_regular_file"):
        read_state(tmp_path / "pipe", OWNER, SIZES)


def test_state_file_failing_write_keeps_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state"
    write_state(path, OWNER, BUFFERS, b"first")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises(webpte.InputError, path, os.strerror(errno.ENOSPC), code="not_writable"):
        write_state(path, OWNER, BUFFERS, b"second")
    monkeypatch.undo()
    assert read_state(path, OWNER, SIZES)[1] == b"first" and os.listdir(tmp_path) == ["state"]
    with raises(webpte.InputError, tmp_path / "missing" / "state", code="not_writable"):
        write_state(tmp_path / "missing" / "state", OWNER, BUFFERS, b"")


def test_file_and_folder_are_synced_around_the_rename(tmp_path, monkeypatch):
    done: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        real_sync(descriptor)

    def replace(source: str, target: str) -> None:
        done.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    write_state(tmp_path / "state", OWNER, BUFFERS, b"")
    assert done == ["file", "rename", "folder"]
