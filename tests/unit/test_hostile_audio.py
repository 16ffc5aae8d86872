"""Audio files that lie about their rate, channels and length: a typed error, without the work that they announce."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from tests.studies.fuzz.media import wav_bytes
from tests.support.harness.errors import raises
from webpte.errors import Error
from webpte.serve.media_process import write_samples

pytest.importorskip("soundfile")
AUDIO = Path(__file__).parents[1] / "support" / "audio"


def _hostile_audio() -> dict[str, tuple[bytes, str | int]]:
    """Return files whose headers lie, by name, with the code of the error or the number of samples at 16 kHz."""
    sound, ogg, flac = b"\0" * 64_000, (AUDIO / "tone.ogg").read_bytes(), (AUDIO / "tone.flac").read_bytes()
    mp3 = (AUDIO / "tone.mp3").read_bytes()
    files: dict[str, tuple[bytes, str | int]] = {
        f"WAV of {rate} Hz": (wav_bytes(sound, channels=1, rate=rate), code)
        for rate, code in ((0, "contradiction"), (1, "too_long"), (999, "out_of_range"), (2**32 - 1, "out_of_range"))
    }
    bits = int.from_bytes(flac[18:26], "big")  # rate: 20 bits, channels: 3, bits of a sample: 5, samples: 36
    for rate, code in ((0, "unreadable"), (1, "too_long"), (2**20 - 1, "out_of_range")):
        changed = (bits & (1 << 44) - 1 | rate << 44).to_bytes(8, "big")
        files[f"FLAC of {rate} Hz"] = flac[:18] + changed + flac[26:], code
    files["FLAC of weeks"] = flac[:18] + (bits | (1 << 36) - 1).to_bytes(8, "big") + flac[26:], "too_long"
    at = ogg.index(b"\x01vorbis") + 12  # the rate, after the channels
    for rate in (0, 1, 2**32 - 1):
        files[f"Ogg of {rate} Hz"] = ogg[:at] + struct.pack("<I", rate) + ogg[at + 4 :], "unreadable"
    files["Ogg of 255 channels"] = ogg[: at - 1] + b"\xff" + ogg[at:], "unreadable"
    files["MP3 after a tag of 256 MB"] = b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + mp3, "unreadable"
    files["MP3 after 10,000 tags"] = b"ID3\x04\0\0\0\0\0\0" * 10_000 + mp3, "unreadable"
    files |= {f"{data[:4]!r} cut": (data[:40], "unreadable") for data in (flac, ogg, mp3)}
    files |= {f"{data[:4]!r} empty": (data[:4], "unreadable") for data in (flac, ogg, mp3)}
    files["WAV without samples"] = wav_bytes(b"", channels=1), "empty"
    endless = bytearray(wav_bytes(sound, channels=1, rate=16_000))
    at = endless.index(b"data") + 4
    endless[at : at + 4] = b"\xff" * 4
    files["WAV of 4 GB, cut"] = bytes(endless), 32_000
    return files


@pytest.mark.parametrize("name", _hostile_audio())
def test_audio_whose_header_lies_ends_early(tmp_path, name):
    """As the server's process reads it, whose limit is an hour."""
    data, expected = _hostile_audio()[name]
    source, target = tmp_path / "a", tmp_path / "samples"
    source.write_bytes(data)
    if isinstance(expected, int):
        write_samples(lambda: None, str(source), str(target), 16_000, 3600.0)
        assert target.stat().st_size == 4 * expected
        return
    began = time.process_time()
    with raises(Error, code=expected):
        write_samples(lambda: None, str(source), str(target), 16_000, 3600.0)
    assert time.process_time() - began < 1 and not target.exists()
