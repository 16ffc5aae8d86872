"""Speech without a model: WAV files, resampling, rules of tokens, windows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tests.studies.fuzz.media import wav_bytes
from tests.support.harness.errors import raises
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.speech.audio import FLOAT, MAX_WAV_CHUNKS, PCM, load_samples, piece_length, read_audio, resample
from webpte.speech.compressed import MAX_CHANNELS, UNKNOWN_FRAMES
from webpte.speech.decoding import TokenRules, TokenSpan, log_probability, split_spans

AUDIO = Path(__file__).parents[1] / "support" / "audio"
VALUES = np.array([0.0, 0.5, -0.5, 0.25, -1.0, 0.75])


def wav(path: Path, body: bytes, *fields, **options) -> Path:
    path.write_bytes(wav_bytes(body, *fields, **options))
    return path


STORED = {
    (PCM, 8): ((VALUES * 128 + 128).clip(0, 255).astype(np.uint8).tobytes(), 1 / 128),
    (PCM, 16): ((VALUES * 32768).astype("<i2").tobytes(), 1e-4),
    (PCM, 24): (b"".join(int(v * (1 << 23)).to_bytes(3, "little", signed=True) for v in VALUES), 1e-6),
    (PCM, 32): ((VALUES * (2**31 - 1)).astype("<i4").tobytes(), 1e-6),
    (FLOAT, 32): (VALUES.astype("<f4").tobytes(), 0),
    (FLOAT, 64): (VALUES.astype("<f8").tobytes(), 0),
}


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("kind", "bits"), STORED)
def test_read_wav_formats_give_samples(tmp_path, kind, bits, extensible):
    body, close = STORED[kind, bits]
    samples, rate = read_audio(wav(tmp_path / "a.wav", body, kind, 2, bits, extensible=extensible))
    assert rate == 8000 and samples.shape == (3, 2) and samples.dtype == np.float32
    assert np.abs(samples.ravel() - VALUES).max() <= close


def test_read_wav_truncated_file_gives_available_samples(tmp_path):
    path = wav(tmp_path / "a.wav", STORED[PCM, 16][0])
    path.write_bytes(path.read_bytes()[:-3])
    assert read_audio(path)[0].ravel().tolist() == VALUES[:4].tolist()


def test_read_wav_invalid_file_is_refused(tmp_path):
    path = tmp_path / "a.wav"
    with raises(FormatError, path, os.strerror(errno.ENOENT), code="unreadable"):
        read_audio(path)
    path.write_bytes(b"a text")
    with raises(FormatError, path, "MP3", code="unreadable"):
        read_audio(path)
    path.write_bytes(b"RIFF\x04\0\0\0WAVE")
    with raises(FormatError, path, "'data'", "12 bytes", code="missing_data"):
        read_audio(path)
    path.write_bytes(b"RIFF\x0c\0\0\0WAVEdata\x02\0\0\0\0\0")
    with raises(FormatError, path, code="missing_field"):
        read_audio(path)
    with raises(UnsupportedError, "format 2 ", "4 bits", code="sample_format"):
        read_audio(wav(path, b"\0\0", kind=2, bits=4))
    with raises(FormatError, " 1 channels", "16 bits", " 7 bytes", code="contradiction"):
        read_audio(wav(path, b"\0\0", block=7))
    for channels in (0, MAX_CHANNELS + 1, 65_535):
        with raises(FormatError, f"1 to {MAX_CHANNELS} channels, got {channels}", code="out_of_range"):
            read_audio(wav(path, b"\x80" * channels, bits=8, channels=channels, block=channels))


def test_read_wav_of_many_chunks_is_refused_early(tmp_path):
    """An empty chunk has 8 bytes: 24 MB of them took two seconds."""
    path = wav(tmp_path / "a.wav", STORED[PCM, 16][0])
    data, empty = path.read_bytes(), b"junk\0\0\0\0"
    path.write_bytes(data[:12] + empty * (MAX_WAV_CHUNKS - 3) + data[12:])
    assert len(read_audio(path)[0]) == len(VALUES)
    path.write_bytes(data[:12] + empty * MAX_WAV_CHUNKS + data[12:])
    with raises(FormatError, path, "'data'", code="missing_data"):
        read_audio(path)


@pytest.mark.parametrize(("name", "close"), [("tone.flac", 1e-4), ("tone.ogg", 0.01), ("tone.mp3", 0.01)])
def test_compressed_file_gives_mean_of_channels(name, close):
    """A second of a sine at 11,025 Hz, with 0.5 on the left and 0.25 on the right."""
    samples, rate = read_audio(AUDIO / name)
    sine = 0.375 * np.sin(2 * np.pi * 440 * np.arange(11025) / 11025)
    assert rate == 11025 and samples.shape == (11025,) and samples.dtype == np.float32
    assert np.abs(samples - sine)[600:-600].max() <= close  # lossy formats fade in and out


def test_compressed_file_invalid_is_refused(tmp_path):
    whole = (AUDIO / "tone.flac").read_bytes()
    path = tmp_path / "a.flac"
    path.write_bytes(whole[:20])
    with raises(FormatError, "FLAC", code="unreadable"):
        read_audio(path)


def test_file_longer_than_allowed_is_refused(tmp_path):
    assert len(read_audio(AUDIO / "tone.flac", 1)[0]) == 11025
    with raises(InputError, "0.5 seconds", code="too_long"):
        read_audio(AUDIO / "tone.flac", 0.5)
    path = wav(tmp_path / "a.wav", STORED[PCM, 16][0], channels=1)
    with raises(InputError, code="too_long"):
        load_samples(path, 16000, 16000, 5 / 8000)


@pytest.mark.parametrize("format", ["FLAC", "OGG"])
def test_long_silence_is_refused_before_it_is_decoded(tmp_path, monkeypatch, format):
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "a"
    with soundfile.SoundFile(path, "w", 8000, 1, format=format) as file:
        for _ in range(301):  # libsndfile's encoder of Ogg crashes on minutes at once
            file.write(np.zeros(8000, np.float32))
    assert path.stat().st_size < 30_000
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda *_, **__: pytest.fail("the file is decoded"))
    with raises(InputError, "300 seconds", code="too_long"):
        read_audio(path, 300)


def test_length_that_a_file_does_not_say_is_found_while_it_is_decoded(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile")
    monkeypatch.setattr(soundfile.SoundFile, "frames", UNKNOWN_FRAMES)
    assert len(read_audio(AUDIO / "tone.flac", 1)[0]) == 11025
    with raises(InputError, "0.5 seconds", code="too_long"):
        read_audio(AUDIO / "tone.flac", 0.5)


@pytest.mark.parametrize("cut", range(0, 70, 3))
def test_audio_truncated_anywhere_is_read_or_refused(tmp_path, cut):
    path = wav(tmp_path / "a.wav", STORED[PCM, 16][0])
    path.write_bytes(path.read_bytes()[:cut])
    try:
        samples, _ = read_audio(path)
    except FormatError:
        return
    assert len(samples) <= len(VALUES)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000, 44101])
def test_resample_tone_keeps_pitch_and_phase(rate):
    hertz = 700.0
    there = np.sin(2 * np.pi * hertz * np.arange(rate) / rate).astype(np.float32)
    here = resample(there, rate, 16000)
    assert here.shape == (16000,) and here.dtype == np.float32
    want = np.sin(2 * np.pi * hertz * np.arange(16000) / 16000)
    assert np.abs(here - want)[500:-500].max() < 2e-3  # but for the ends, where the tone begins and stops at once


def test_resample_constant_is_unchanged():
    assert np.abs(resample(np.ones(3000, np.float32), 44100, 16000)[100:-100] - 1).max() < 1e-6


@pytest.mark.parametrize("hertz", [8700.0, 12000.0, 20000.0])
def test_resample_removes_frequencies_beyond_rate(hertz):
    tone = np.sin(2 * np.pi * hertz * np.arange(44100) / 44100).astype(np.float32)
    assert np.abs(resample(tone, 44100, 16000))[500:-500].max() < 2e-3


@pytest.mark.parametrize(
    ("samples", "rate", "count"), [(1, 8000, 2), (441, 44100, 160), (442, 44100, 161), (5, 48000, 2)]
)
def test_resample_length_follows_duration(samples, rate, count):
    assert len(resample(np.ones(samples, np.float32), rate, 16000)) == count


def test_piece_ends_in_the_quietest_tenth_of_a_second():
    samples = np.random.default_rng(0).normal(0, 0.1, 4001).astype(np.float32)
    assert piece_length(samples, 4001, 1000) == 4001
    samples[1800:1950] = samples[3001:] = 0.0  # before and after the last third of 3,000
    samples[2500:2600] = 0.001
    samples[2111:2311] = 0.0
    assert piece_length(samples, 3000, 1000) == 2161
    samples[2111:2311] = 1.0
    assert piece_length(samples, 3000, 1000) == 2550
    assert piece_length(np.zeros(4001, np.float32), 3000, 1000) == 2050
    assert 1 <= piece_length(np.zeros(7, np.float32), 3, 1000) <= 3


def test_load_samples_mixes_channels_and_scales_integers():
    both = np.stack([np.full(8, 0.5), np.full(8, -0.25)], 1).astype(np.float32)
    assert load_samples(both, 16000, 16000).tolist() == [0.125] * 8
    assert load_samples(np.full(8, 16384, np.int16), 16000, 16000).tolist() == [0.5] * 8
    assert load_samples(np.full(8, 0.5), 16000, 16000).dtype == np.float32


@pytest.mark.parametrize(
    ("audio", "code", "expected"),
    [
        ([0.1, 0.2], "wrong_type", ["list"]),
        (7, "wrong_type", ["got 7"]),
        (np.zeros((2, 3, 4), np.float32), "wrong_shape", ["[2, 3, 4]"]),
        (np.zeros((2, 16000), np.float32), "wrong_shape", ["[2, 16000]", "(samples, channels)", "64 channels"]),
        (np.zeros(4, np.int32), "wrong_dtype", ["int32"]),
        (np.zeros(0, np.float32), "empty", []),
        (np.array([0, np.nan, 1], np.float32), "not_finite", ["at 1"]),
        (np.array([0, np.inf], np.float32), "not_finite", ["at 1"]),
        (np.array([0, 1e308]), "not_finite", ["inf at 1"]),
        (np.array([[0, 0], [np.inf, -np.inf]], np.float32), "not_finite", ["nan at 1"]),
    ],
)
def test_wrong_audio_is_refused(audio, code, expected):
    with raises(InputError, "audio", *expected, code=code):
        load_samples(audio, 16000, 16000)


@pytest.mark.parametrize("rate", [1, 999, 768_001])
def test_wrong_rates_are_refused(rate):
    with raises(InputError, "rate: ", "1000 to 768000 ", f"got {rate}", code="out_of_range"):
        load_samples(np.zeros(4, np.float32), rate, 16000)


# ---------------------------------------------------------------- rules

END, START, NO_SPEECH, NO_STAMPS, FIRST = 4, 5, 6, 7, 8  # text is below END; timestamps are 8 to 17
RULES = TokenRules(START, END, NO_STAMPS, suppressed=(2,), suppressed_first=(1,), max_first_timestamp=3)


def say(said: list[int], timestamps: bool = True, **likely: float) -> int:
    logits = np.zeros(18, np.float32)
    for name, value in likely.items():
        logits[int(name[1:])] = value
    return int(RULES.mask(logits, said, timestamps).argmax())


def test_speech_rules_suppressed_tokens():
    assert say([], False, t2=9, t1=8, t0=7) == 0
    assert say([0], False, t2=9, t1=8, t0=7) == 1


def test_speech_rules_first_token_is_early_timestamp():
    assert say([], t0=99, t15=9, t10=1) == 10


def test_speech_rules_text_follows_first_timestamp():
    assert say([9], t12=99, t3=1) == 3


def test_timestamps_come_in_pairs():
    assert say([9, 3, 12], t0=99, t12=1) == 12  # its partner may be the same
    assert say([9, 3, 12], t0=99, t4=9) == END
    assert say([9, 3, 12, 12], t14=99, t0=1) == 0


def test_timestamps_never_go_back():
    assert say([9, 3, 12], t11=99, t13=1) == 13
    assert say([9, 3], t9=99, t0=9) == 0  # a text takes time


def test_timestamps_together_may_win():
    assert say([9, 3], t0=2.0) >= FIRST  # eight of them, each with 1 beside e² of the text
    assert say([9, 3], t0=3.0) == 0


def test_speech_rules_no_timestamps_token_is_suppressed():
    assert say([9, 3], t7=99, t0=9) == 0


def test_speech_rules_probability_of_allowed_tokens():
    allowed = RULES.mask(np.zeros(18, np.float32), [0], False)
    assert np.isclose(log_probability(allowed, 0), -np.log(17))
    assert log_probability(allowed, 2) == -np.inf


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("tokens", "segments", "step"),
    [
        ([8, 1, 2, 11, 11, 3], [TokenSpan(0, 3, (8, 1, 2, 11, 11))], 6),  # what follows the pair is heard again
        ([8, 1, 11, 12, 3, 15], [TokenSpan(0, 3, (8, 1, 11)), TokenSpan(4, 7, (12, 3, 15))], 100),  # nothing follows
        ([8, 1, 11, 12, 3, 15, 15], [TokenSpan(0, 3, (8, 1, 11)), TokenSpan(4, 7, (12, 3, 15, 15))], 14),
        ([8, 1, 2], [TokenSpan(0, 50, (8, 1, 2))], 100),
        ([9, 1, 2], [TokenSpan(0, 1, (9, 1, 2))], 100),
        ([8, 1, 2, 13], [TokenSpan(0, 5, (8, 1, 2, 13))], 100),
        ([1, 2], [TokenSpan(0, 50, (1, 2))], 100),
        ([], [TokenSpan(0, 50, ())], 100),
    ],
)
def test_windows_are_split_at_timestamps(tokens, segments, step):
    assert split_spans(tokens, FIRST, 100) == (segments, step)
