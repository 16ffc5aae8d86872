"""Whisper against transformers: spectrograms, hidden states, logits, tokens and segments."""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.harness.wrong_calls import Wrong, check
from tests.support.models import example_models
from tests.support.models.whisper import SAMPLES, sound
from webpte.builder.recipe import QuantizedWeights
from webpte.builder.speech import speech_recipe
from webpte.checkpoints.speech import read_speech
from webpte.checkpoints.whisper import LANGUAGE_NAMES
from webpte.errors import CancelledError, FormatError, InputError, UnsupportedError
from webpte.export import export_speech, write_speech_files
from webpte.speech import Transcriber
from webpte.speech.audio import LogMel

transformers = pytest.importorskip("transformers")
WORDS = "whisper.tokenizer.json", "whisper.task.json", "whisper.pte"


@cache
def folder():
    return example_models.whisper()


@pytest.fixture(scope="module")
def whisper():
    with Transcriber.load(folder() / "whisper.pte") as transcriber:
        yield transcriber


@cache
def reference() -> Any:
    model = transformers.WhisperForConditionalGeneration
    return model.from_pretrained(folder() / "whisper", attn_implementation="eager").eval()


def features(samples: np.ndarray, **options: Any) -> Any:
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder() / "whisper")
    return extractor(samples, sampling_rate=16000, return_tensors="pt", **options).input_features


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("kind", ["noise", "tones", "silence", "short"])
def test_spectrograms_equal_transformers(kind, bands):
    samples = np.zeros(30 * SAMPLES, np.float32)
    if kind != "silence":
        heard = sound("tones" if kind == "tones" else "noise", 11 if kind == "short" else 30)
        samples[: len(heard)] = heard
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    ours = LogMel(16000, bands, 400, 160)
    assert np.abs(ours.filters.T - extractor.mel_filters).max() < 1e-12
    result = ours(samples)
    assert result.shape == (bands, 3000) and result.dtype == np.float32
    for theirs in (extractor._np_extract_fbank_features, extractor._torch_extract_fbank_features):
        assert np.abs(result - theirs(samples[None], "cpu")[0]).max() < 1e-4


def test_hidden_states_and_logits_equal_transformers():
    import torch

    mel = features(sound("tones", 0.8))
    tokens = np.random.default_rng(1).integers(0, 158, (1, 23))
    with torch.no_grad():
        hidden = reference().model.encoder(mel).last_hidden_state.numpy()
        logits = reference()(mel, decoder_input_ids=torch.tensor(tokens)).logits[0].numpy()
    with webpte.load(folder() / "whisper.pte") as program:
        encode, decode = program.method("encode"), program.method("decode")
        assert len(encode.plan.flow.segments) == len(decode.plan.flow.segments) == 1, "some of it runs on the CPU"
        ours, *heard = encode.run([mel.numpy()], strict=True)
        assert np.abs(ours - hidden).max() < 1e-4
        for position, count in ((0, 11), *((11 + step, 1) for step in range(12))):
            result = decode(tokens[:, position : position + count], np.array([position]), *heard)
            assert np.abs(result[0] - logits[position + count - 1]).max() < 1e-4 * np.abs(logits).max()


# Of 4w the head and the table have 8 bits.
@pytest.mark.parametrize("kind", slow_but(["4w"], ["4w", "8w"]))
def test_quantized_program_equals_transformers_with_its_weights(kind):
    import torch

    quantized = example_models.quantized_whisper(kind)
    model = copy.deepcopy(reference())
    source = read_speech(folder() / "whisper").with_padded_head()
    weights = QuantizedWeights(source.weights)
    recipe = speech_recipe(source, kind, 32)
    parameters = dict(model.named_parameters())
    model.proj_out.weight = torch.nn.Parameter(parameters["model.decoder.embed_tokens.weight"].clone())
    parameters |= {"output.weight": model.proj_out.weight}
    parameters |= {"tok_embeddings.weight": parameters["model.decoder.embed_tokens.weight"]}
    for name, format in {**recipe.linears, "tok_embeddings": recipe.embedding}.items():
        parameter = parameters[f"{name}.weight"]
        parameter.data = torch.tensor(weights.quantized(name, format).values()[: len(parameter)])
    mel = features(sound("tones", 0.8))
    tokens = torch.tensor(np.random.default_rng(1).integers(0, 158, (1, 12)))
    with torch.no_grad():
        hidden = model.model.encoder(mel).last_hidden_state.numpy()
        logits = model(mel, decoder_input_ids=tokens).logits[0].numpy()
        plain = reference()(mel, decoder_input_ids=tokens[:, :11]).logits[0, -1].numpy()
    with webpte.load(quantized / "whisper.pte") as program:
        encode, decode = program.method("encode"), program.method("decode")
        assert len(encode.plan.flow.segments) == len(decode.plan.flow.segments) == 1, "some of it runs on the CPU"
        ours, *heard = encode.run([mel.numpy()], strict=True)
        assert np.abs(ours - hidden).max() < 1e-4
        actual = (
            decode(tokens[:, :11].numpy(), np.array([0]), *heard),
            decode(tokens[:, 11:].numpy(), np.array([11]), *heard),
        )
    for one, want in zip(actual, logits[10:], strict=True):
        assert one.shape == (1, 158) and np.abs(one[0] - want).max() < 1e-4 * np.abs(want).max()
    lost = np.abs(actual[0][0] - plain).mean() / np.abs(plain).mean()
    assert 1e-4 < lost < {"4w": 0.5, "8w": 0.05}[kind]  # random weights lose much; other weights would be above 1
    report = json.loads((quantized / "whisper.quality.json").read_text())["quantized"]
    assert report["layers"]["output"]["kind"] == report["layers"]["tok_embeddings"]["kind"] == "8w"
    assert (quantized / "whisper.pte").stat().st_size < (folder() / "whisper.pte").stat().st_size


def test_speech_other_quantization_refused_before_work(tmp_path):
    for options, values in (
        ({"quantize": "8da4w"}, ["quantize", "4w, 8w ", "'8da4w'"]),
        ({"quantize": "auto", "bits_per_weight": 5.0}, ["bits_per_weight", "group_size"]),
        ({"quantize": "4w", "group_size": 1}, ["group_size", 1, 32]),
    ):
        with raises(InputError, *values):
            webpte.export.export_checkpoint(folder() / "whisper", tmp_path / "x.pte", **options)


# Without timestamps a random model says some all the same; transformers would take them for what they are.
@pytest.mark.parametrize(
    ("seconds", "kind", "language"),
    [(1, "noise", None), (0.6, "tones", None), (1, "tones", "de"), (0.6, "noise", "French")],
)
def test_tokens_equal_transformers(whisper, seconds, kind, language):
    samples = sound(kind, seconds)
    options = {"language": language, "task": "translate", "force_unique_generate_call": True}
    want = reference().generate(features(samples), **options)[0].tolist()
    actual = whisper(samples, language=language, task="translate")
    assert [*actual.tokens] == [token for token in want[4:] if token != 95]
    assert actual.segments == () and actual.language == {"de": "de", "French": "fr"}.get(language, actual.language)


@pytest.mark.parametrize(("seconds", "kind"), [(1, "noise"), (0.6, "tones"), (2.7, "noise"), (2.7, "tones")])
def test_segments_equal_transformers(whisper, seconds, kind):
    samples = sound(kind, seconds)
    longer = {"truncation": False, "padding": "longest"} if seconds > 1 else {}
    options = {"language": "en", "task": "transcribe", "return_timestamps": True, "return_segments": True}
    want = reference().generate(features(samples, **longer), **options)["segments"][0]
    events: list[webpte.Progress] = []
    actual = whisper(samples, language="en", timestamps=True, progress=events.append)
    ours = [(segment.start, segment.end, [*segment.tokens]) for segment in actual.segments]
    theirs = [(float(one["start"]), float(one["end"]), one["tokens"].tolist()) for one in want]
    assert [tokens for *_, tokens in ours] == [tokens for *_, tokens in theirs]
    assert np.abs(np.array([one[:2] for one in ours]) - np.array([one[:2] for one in theirs])).max() < 1e-6
    assert actual.text == "".join(segment.text for segment in actual.segments)
    windows = [event for event in events if event.stage == "transcribe"]
    assert windows[-1].done == windows[-1].total == round(seconds * 100) or seconds < 1
    assert {event.unit for event in events} == {"frames", "tokens"}


def test_speech_wav_resampled_and_long_audio_without_timestamps(whisper, tmp_path):
    import wave

    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(48000)
        tone = (np.sin(np.arange(3 * 24000) / 30) * 9000).astype("<i2")
        file.writeframes(np.stack([tone, tone], 1).tobytes())
    heard = whisper(tmp_path / "a.wav", language="en")
    again = whisper(np.stack([tone, tone], 1), rate=48000, language="en", timestamps=True)
    assert heard.tokens == again.tokens and heard.segments == () and len(again.segments) > 1
    assert again.segments[-1].end <= 3.0 and str(heard) == heard.text


def test_silence_is_left_out_where_that_is_asked_for(whisper, monkeypatch):
    samples = sound("noise", 1)
    assert whisper(samples, no_speech_threshold=1.0).tokens == whisper(samples).tokens
    monkeypatch.setattr("webpte.speech.transcriber.MIN_MEAN_LOG_PROBABILITY", 0.0)
    assert whisper(samples, no_speech_threshold=0.0).tokens == ()


def test_transcriber_cancelled_stops_and_is_usable(whisper):
    want = whisper(sound("tones", 1)).tokens
    token = webpte.CancelToken()

    def stop(event: webpte.Progress) -> None:
        if event.stage == "decode" and event.done == 5:
            token.cancel()

    with raises(CancelledError, "'decode'", "6 of 36 tokens"):
        whisper(sound("tones", 1), progress=stop, cancel=token)
    assert whisper(sound("tones", 1)).tokens == want


def test_speech_english_only_model_refuses_language(tmp_path):
    for name in WORDS:
        shutil.copy(folder() / name, tmp_path)
    path = tmp_path / "whisper.task.json"
    report = json.loads(path.read_text())
    path.write_text(json.dumps(report | {"languages": {}, "tasks": {}, "language_names": {}}))
    with Transcriber.load(tmp_path / "whisper.pte") as english:
        result = english(sound("noise", 1), language="en")
        assert result.language is None and len(result.tokens) == 38 and "one language" in repr(english)
        for task, language in (("translate", None), ("transcribe", "de")):
            with raises(InputError, "language", "task", code="one_language"):
                english(sound("noise", 1), task=task, language=language)


def test_speech_model_without_timestamps_one_window(tmp_path):
    for name in WORDS:
        shutil.copy(folder() / name, tmp_path)
    path = tmp_path / "whisper.task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"no_timestamps_token": None}))
    with Transcriber.load(tmp_path / "whisper.pte") as plain:
        assert plain(sound("noise", 1)).tokens
        for seconds, timestamps in ((1.1, False), (1, True)):
            with raises(InputError, "1 seconds", code="no_timestamps"):
                plain(sound("noise", seconds), timestamps=timestamps)


@pytest.mark.parametrize(
    ("change", "code", "values"),
    [
        ({"bands": 80}, "other_export", ["16 bands of 100 frames", "80 bands of 100"]),
        ({"window": 480000}, "other_export", ["16 bands of 100 frames", "16 bands of 3000"]),
        ({"start_token": 158}, None, ["start_token", "0 to 157", "158"]),
        ({"suppress_tokens": [1, 999]}, None, ["suppress_tokens", "0 to 157", "999"]),
        ({"language": "xx"}, None, ["language", "en, de", "xx"]),
        ({"beams": 5}, "unknown_field", ["beams"]),
    ],
)
def test_files_of_another_export_are_refused(tmp_path, change, code, values):
    for name in WORDS:
        shutil.copy(folder() / name, tmp_path)
    path = tmp_path / "whisper.task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with raises(FormatError, *values, code=code):
        Transcriber.load(tmp_path / "whisper.pte")


def test_wrong_calls(whisper):
    second = sound("noise", 1)
    calls = [
        Wrong(lambda: whisper(second, rate=0), "rate"),
        Wrong(lambda: whisper(second, rate=16000.5), "rate"),
        Wrong(lambda: whisper(second, rate="16k"), "rate"),
        Wrong(lambda: whisper(second, language="klingon"), "language"),
        Wrong(lambda: whisper(second, language=7), "language"),
        Wrong(lambda: whisper(second, task="summarise"), "task"),
        Wrong(lambda: whisper(second, task=None), "task"),
        Wrong(lambda: whisper(second, timestamps="word"), "timestamps"),
        Wrong(lambda: whisper(second, no_speech_threshold=1.5), "no_speech_threshold"),
        Wrong(lambda: whisper(second, no_speech_threshold="high"), "no_speech_threshold"),
        Wrong(lambda: whisper(second, progress=1), "progress"),
        Wrong(lambda: whisper(second, cancel=True), "cancel"),
        Wrong(lambda: whisper(None), "audio"),
        Wrong(lambda: whisper("nowhere.wav"), "nowhere.wav", FormatError),
        Wrong(lambda: Transcriber.load("nowhere.pte"), "nowhere.pte"),
    ]
    for wrong in calls:
        check(wrong)
    assert whisper(second).tokens  # still works


def changed(tmp_path, name: str, **fields: Any):
    path = tmp_path / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("file", "fields", "error", "values"),
    [
        ("config.json", {"model_type": "speecht5"}, UnsupportedError, ["model_type", "speecht5"]),
        ("config.json", {"quantization_config": {"bits": 4}}, UnsupportedError, ["config.json"]),
        ("config.json", {"num_mel_bins": 80}, FormatError, ["16 bands of 100 frames", "80 of"]),
        ("preprocessor_config.json", {"chunk_length": 2}, FormatError, ["16 bands of 200 frames"]),
        ("preprocessor_config.json", {"dither": 0.1}, UnsupportedError, ["dither = 0.1"]),
        ("preprocessor_config.json", {"do_normalize": True}, UnsupportedError, ["do_normalize"]),
        ("preprocessor_config.json", {"mel_scale": "htk"}, UnsupportedError, ["mel_scale", "htk"]),
        ("generation_config.json", {"num_beams": 5}, UnsupportedError, ["num_beams = 5"]),
        ("generation_config.json", {"do_sample": True}, UnsupportedError, ["do_sample"]),
        ("generation_config.json", {"repetition_penalty": 1.2}, UnsupportedError, ["repetition_penalty"]),
        ("generation_config.json", {"eos_token_id": [95, 96]}, UnsupportedError, ["eos_token_id", "[95, 96]"]),
        ("generation_config.json", {"decoder_start_token_id": None}, FormatError, ["decoder_start_token_id"]),
        ("generation_config.json", {"new_rule": 1}, UnsupportedError, ["new_rule = 1"]),
    ],
)
def test_speech_unknown_config_is_refused_by_name(tmp_path, file, fields, error, values):
    source = shutil.copytree(folder() / "whisper", tmp_path / "whisper")
    changed(source, file, **fields)
    with raises(error, *values) as caught:
        export_speech(source, tmp_path / "w.pte")
    if isinstance(caught.value, UnsupportedError):
        assert caught.value.items == tuple(fields)
    assert not (tmp_path / "w.pte").exists()


def test_speech_folder_missing_files_is_refused(tmp_path):
    source = shutil.copytree(folder() / "whisper", tmp_path / "whisper")
    (source / "tokenizer.json").unlink()
    with raises(FormatError, source, "tokenizer.json", "save_pretrained"):
        export_speech(source, tmp_path / "w.pte")
    (source / "preprocessor_config.json").unlink()
    with raises(FormatError, "preprocessor_config.json"):
        export_speech(source, tmp_path / "w.pte")


def test_text_so_far_is_the_beginning_of_the_whole(whisper):
    texts: list[str] = []
    transcript = whisper(sound("tones", 2.7), on_text=texts.append)
    assert len(texts) > 1 and texts[-1] == transcript.text.rstrip("\ufffd")
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))


def test_whisper_is_exported_without_torch_and_transformers(tmp_path):
    blocked = "import sys; sys.modules.update(torch=None, transformers=None, executorch=None)"
    code = f"{blocked}; from webpte.export import export_checkpoint; export_checkpoint(sys.argv[1], 'w.pte')"
    example_models.run_script(tmp_path, "-c", code, folder() / "whisper")
    assert (tmp_path / "w.pte").read_bytes() == (folder() / "whisper.pte").read_bytes()


@pytest.mark.slow
def test_program_with_the_methods_of_optimum_has_equal_tokens(whisper, tmp_path):
    from tests.support.models.foreign_whisper import write_foreign

    write_foreign(folder() / "whisper", tmp_path / "model.pte")
    files = write_speech_files(folder() / "whisper", tmp_path / "model.pte")
    assert [file.name for file in files] == ["model.task.json", "model.tokenizer.json"]
    with Transcriber.load(tmp_path / "model.pte") as foreign:
        for kind, seconds in (("tones", 0.6), ("noise", 2.7)):
            actual, expected = (each(sound(kind, seconds), timestamps=True) for each in (foreign, whisper))
            assert actual == expected and len(actual.tokens) > 30


def test_language_names_equal_transformers():
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    assert LANGUAGE_NAMES == LANGUAGES


@pytest.mark.slow
def test_speech_whisper_tiny_shape_equals_transformers(tmp_path):
    """4 + 4 layers, 384 wide, 51,865 tokens, 30 seconds; minutes."""
    import torch

    from tests.support.models.whisper import real_whisper

    export_speech(real_whisper(tmp_path / "whisper"), tmp_path / "w.pte")
    model = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "whisper").eval()
    mel = np.random.default_rng(0).normal(0, 0.5, (1, 80, 3000)).astype(np.float32)
    tokens = np.random.default_rng(1).integers(0, 51865, (1, 29))
    with torch.no_grad():
        hidden = model.model.encoder(torch.tensor(mel)).last_hidden_state.numpy()
        logits = model(torch.tensor(mel), decoder_input_ids=torch.tensor(tokens)).logits[0].numpy()
    with webpte.load(tmp_path / "w.pte") as program:
        encode, decode = program.method("encode"), program.method("decode")
        ours, *heard = encode.run([mel], strict=True)
        assert np.abs(ours - hidden).max() < 1e-4 * max(1, np.abs(hidden).max())
        for position, count in ((0, 17), *((17 + step, 1) for step in range(12))):
            result = decode(tokens[:, position : position + count], np.array([position]), *heard)
            assert np.abs(result[0] - logits[position + count - 1]).max() < 1e-4 * np.abs(logits).max()
