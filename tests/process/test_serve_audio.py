"""Audio of clients, decoded in a process with limits: whatever the file, the error is typed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.support.harness.errors import raises
from webpte.errors import InputError
from webpte.serve.errors import ApiError
from webpte.serve.media_process import decode_audio

RATE = 16_000
soundfile = pytest.importorskip("soundfile")


def decoded(source: Path, max_seconds: float, timeout: float = 60.0) -> np.ndarray:
    target = source.with_name("samples")
    asyncio.run(decode_audio(source, target, RATE, max_seconds, timeout))
    return np.fromfile(target, "<f4")


def silence(path: Path, seconds: int, rate: int, channels: int = 1) -> Path:
    with soundfile.SoundFile(path, "w", rate, channels, format="FLAC") as file:
        for _ in range(seconds):
            file.write(np.zeros((rate, channels), np.int16))
    return path


def test_silence_longer_than_allowed_is_refused(tmp_path):
    assert len(decoded(silence(tmp_path / "a", 3, 8000), 3)) == 3 * RATE
    with raises(InputError, "3 seconds", code="too_long"):
        decoded(silence(tmp_path / "a", 4, 8000), 3)


def test_silence_that_takes_too_much_memory_or_time_is_refused(tmp_path, monkeypatch):
    source = silence(tmp_path / "a", 20, 192_000, 8)
    assert source.stat().st_size < 1_000_000
    with pytest.raises(ApiError, match="audio_timeout"):
        decoded(source, 20, 0.01)
    monkeypatch.setattr("webpte.serve.media_process.BASE_BYTES", 1 << 20)
    monkeypatch.setattr("webpte.serve.media_process.BYTES_PER_SAMPLE", 1)
    with pytest.raises((ApiError, InputError), match=r"[Mm]emory"):
        decoded(source, 20)


def test_damaged_audio_does_not_fill_the_log(tmp_path, capfd):
    """libsndfile's decoder of MP3 wrote 3 MB of errors about 5 MB, past the format of the log."""
    (tmp_path / "a").write_bytes(b"\xff\xfb\x90" * 40_000)
    decoded(tmp_path / "a", 3600)
    assert capfd.readouterr().err == ""
