"""`/v1/audio` as OpenAI's client uses it: every format, hostile files, limits, and pages of others."""

from __future__ import annotations

import re

import httpx
import openai
import pytest

from tests.studies.fuzz.media import wav_bytes
from tests.support.harness.serving import Running
from tests.support.models import example_models
from tests.support.models.whisper import sound
from tests.unit.test_speech import AUDIO
from webpte.speech import Transcriber

RATE = 16000
LIMITS = ("--max-audio-seconds", "3", "--max-audio-bytes", "200000")


@pytest.fixture(scope="module")
def program():
    return example_models.whisper() / "whisper.pte"


@pytest.fixture(scope="module")
def served(program):
    with Running(program, *LIMITS) as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=served.api, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def recording():
    """Return 2.2 seconds as 16-bit WAV and as samples: three windows of the tiny model."""
    samples = (sound("tones", 2.2) * 0.5 * 32767).astype("<i2")
    return wav_bytes(samples.tobytes(), rate=RATE), samples


@pytest.fixture(scope="module")
def expected(program, recording):
    with Transcriber.load(program) as transcriber:
        return transcriber(recording[1], rate=RATE, timestamps=True)


def test_transcription_formats_agree_with_python(client, recording, expected):
    def ask(form):
        return client.audio.transcriptions.create(model="whisper", file=("a.wav", recording[0]), response_format=form)

    verbose = ask("verbose_json")
    assert (verbose.text, verbose.language, verbose.duration) == (expected.text, expected.language, 2.2)
    assert [(each.start, each.end, each.text, each.tokens) for each in verbose.segments] == [
        (each.start, each.end, each.text, list(each.tokens)) for each in expected.segments
    ]
    assert len(expected.segments) > 1
    plain = ask("json")
    assert plain.usage.seconds == 3 and ask("text") == plain.text + "\n"
    times = re.findall(r"(\d\d):(\d\d):(\d\d),(\d{3}) -->", ask("srt"))
    starts = [3600 * int(h) + 60 * int(m) + int(s) + int(ms) / 1000 for h, m, s, ms in times]
    assert starts == pytest.approx([each.start for each in expected.segments], abs=1e-6)
    assert ask("vtt").startswith("WEBVTT\n\n00:00:00.")


def test_streamed_transcription_has_a_delta_for_each_window(client, recording):
    events = list(
        client.audio.transcriptions.create(model="whisper", file=("a.wav", recording[0]), stream=True, language="en")
    )
    whole = client.audio.transcriptions.create(model="whisper", file=("a.wav", recording[0]), language="en")
    *deltas, last = events
    assert {event.type for event in deltas} == {"transcript.text.delta"} and len(deltas) > 1
    assert "".join(event.delta for event in deltas) == last.text == whole.text
    assert last.type == "transcript.text.done" and last.usage.seconds == 3


def test_moonshine_formats_agree_with_python(tmp_path):
    path = example_models.moonshine() / "moonshine.pte"
    samples = (sound("tones", 1.7) * 0.5 * 32767).astype("<i2")
    with Transcriber.load(path) as transcriber:
        transcript = transcriber(samples, rate=RATE, timestamps=True)
    files = {"file": ("a.wav", wav_bytes(samples.tobytes(), rate=RATE))}
    with Running(path, *LIMITS) as server:
        answers = {
            form: httpx.post(
                f"{server.api}/audio/transcriptions", files=files, data={"response_format": form}, timeout=60
            )
            for form in ("verbose_json", "text", "srt", "vtt")
        }
    verbose = answers["verbose_json"].json()
    (segment,) = verbose["segments"]
    assert (verbose["text"], verbose["language"], segment["tokens"]) == (transcript.text, None, [*transcript.tokens])
    assert (segment["start"], segment["end"]) == (0.0, 1.7) and answers["text"].text == transcript.text + "\n"
    assert "00:00:00,000 --> 00:00:01,700" in answers["srt"].text
    assert answers["vtt"].text.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.700")


def test_compressed_files_and_translation_are_answered(served, program):
    with Transcriber.load(program) as transcriber:
        expected = transcriber(AUDIO / "tone.mp3", language="de", task="translate")
    with (AUDIO / "tone.mp3").open("rb") as file:
        response = httpx.post(
            f"{served.api}/audio/translations", files={"file": file}, data={"language": "de"}, timeout=60
        )
    assert response.json()["text"] == expected.text


@pytest.mark.parametrize(
    ("content", "fields", "status", "words"),
    [
        (b"no audio", {}, 400, "MP3"),
        (b"", {}, 400, "file"),
        (wav_bytes(bytes(2 * 60), rate=RATE) + bytes(200_000), {}, 413, "max_audio_bytes"),
        (wav_bytes(bytes(4 * RATE), rate=1000), {}, 400, "3 seconds"),
        (wav_bytes(bytes(200), rate=RATE), {"language": "xx"}, 400, "language"),
        (wav_bytes(bytes(200), rate=RATE), {"response_format": "docx"}, 400, "response_format"),
        (wav_bytes(bytes(200), rate=RATE), {"temperature": "0.5"}, 400, "temperature"),
        (wav_bytes(bytes(200), rate=RATE), {"stream": "true", "response_format": "srt"}, 400, "stream"),
        (wav_bytes(bytes(200), rate=RATE), {"model": "other"}, 404, "whisper"),
    ],
)
def test_invalid_request_is_refused_and_names_the_field(served, content, fields, status, words):
    answer = httpx.post(f"{served.api}/audio/transcriptions", files={"file": ("a", content)}, data=fields, timeout=60)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]


def test_form_of_another_site_and_other_types_are_refused(served, recording):
    url = f"{served.api}/audio/transcriptions"
    files = {"file": ("a.wav", recording[0])}
    assert httpx.post(url, files=files, headers={"Origin": "https://other.example"}).status_code == 403
    assert httpx.post(url, files=files, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert httpx.post(url, json={"file": "a"}).status_code == 415
    assert httpx.post(url, content=b"--x", headers={"Content-Type": "multipart/form-data"}).status_code == 400


def test_speech_model_at_other_endpoints_is_refused(client, served):
    with pytest.raises(openai.BadRequestError, match="speech model"):
        client.embeddings.create(model="whisper", input="a")
    (model,) = httpx.get(f"{served.api}/models").json()["data"]
    assert model["kind"] == "speech"
    assert "/v1/audio/transcriptions" in httpx.get(served.url, headers={"Accept": "*/*"}).json()["example"]
    schema = httpx.get(f"{served.url}/openapi.json").json()["paths"]["/v1/audio/transcriptions"]["post"]
    assert list(schema["requestBody"]["content"]) == ["multipart/form-data"]
