"""Moonshine against transformers: hidden states, logits, tokens, and the pieces of longer audio."""

from __future__ import annotations

import copy
import json
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.models import example_models
from tests.support.models.whisper import SAMPLES, sound
from webpte.builder.recipe import QuantizedWeights
from webpte.builder.speech import speech_recipe
from webpte.checkpoints.speech import read_speech
from webpte.errors import InputError, UnsupportedError
from webpte.export import export_speech
from webpte.speech import Transcriber
from webpte.speech.audio import piece_length

transformers = pytest.importorskip("transformers")
LEAST = 895  # samples that give one row
LENGTHS = (LEAST, 1031, 1279, 4801, 16001)  # 1,279 samples are the first to give two rows


@cache
def folder():
    return example_models.moonshine()


@pytest.fixture(scope="module")
def moonshine():
    with Transcriber.load(folder() / "moonshine.pte") as transcriber:
        yield transcriber


@cache
def reference() -> Any:
    model = transformers.MoonshineForConditionalGeneration
    return model.from_pretrained(folder() / "moonshine", attn_implementation="eager").eval()


def waves(count: int) -> np.ndarray:
    return sound("tones", count / SAMPLES + 0.01)[:count]


def expected(model: Any, samples: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden states of the encoder, and the logits after each token."""
    import torch

    with torch.no_grad():
        hidden = model.model.encoder(torch.tensor(samples[None])).last_hidden_state
        logits = model(torch.tensor(samples[None]), decoder_input_ids=torch.tensor(tokens)).logits
    return hidden.numpy(), logits[0].numpy()


def generated(samples: np.ndarray) -> list[int]:
    import torch

    _, *tokens = reference().generate(torch.tensor(samples[None]))[0].tolist()
    return [token for token in tokens if token != reference().generation_config.eos_token_id]


def test_hidden_states_and_logits_of_any_length_equal_transformers():
    tokens = np.random.default_rng(1).integers(0, 95, (1, 13))
    with webpte.load(folder() / "moonshine.pte") as program:
        encode, decode = program.method("encode"), program.method("decode")
        assert len(encode.plan.flow.segments) == len(decode.plan.flow.segments) == 1, "some of it runs on the CPU"
        for count in (16001, *LENGTHS):  # also shorter after longer: rows of earlier audio are not visible
            samples = waves(count)
            hidden, logits = expected(reference(), samples, tokens)
            ours, *heard = encode.run([samples[None, None]], strict=True)
            assert ours.shape == hidden.shape and np.abs(ours - hidden).max() < 1e-4
            rows = np.array([ours.shape[1]])
            for position in range(13):
                result = decode(tokens[:, position : position + 1], np.array([position]), rows, *heard)
                assert np.abs(result[0] - logits[position]).max() < 1e-4 * np.abs(logits).max()


@pytest.mark.parametrize("count", LENGTHS)
def test_tokens_equal_transformers(moonshine, count):
    transcript = moonshine(waves(count))
    assert [*transcript.tokens] == generated(waves(count)) and transcript.segments == () and transcript.language is None


def test_shorter_audio_is_padded_with_silence(moonshine):
    samples = waves(211)
    assert [*moonshine(samples).tokens] == generated(np.pad(samples, (0, LEAST - 211)))


def test_longer_audio_is_cut_in_silence(moonshine):
    loud = np.resize(waves(16001), 24 * SAMPLES)
    samples = np.concatenate([loud, np.zeros(SAMPLES // 5, np.float32), loud])
    transcript = moonshine(samples, timestamps=True)
    first, second = transcript.segments
    assert 24 <= first.end <= 24.2 and (first.start, second.start, second.end) == (0.0, first.end, 48.2)
    cut = piece_length(samples, 30 * SAMPLES, SAMPLES)
    assert [*first.tokens] == generated(samples[:cut]) and [*second.tokens] == generated(samples[cut:])
    assert transcript.text == first.text + second.text


def test_quantized_program_equals_transformers_with_its_weights(tmp_path):
    import torch

    export_speech(folder() / "moonshine", tmp_path / "m.pte", quantize="8w")
    model, source = copy.deepcopy(reference()), read_speech(folder() / "moonshine").with_padded_head()
    weights, recipe = QuantizedWeights(source.weights), speech_recipe(source, "8w", 32)
    parameters = dict(model.named_parameters())
    model.proj_out.weight = torch.nn.Parameter(model.model.decoder.embed_tokens.weight.clone())
    stored = {name: each.stored_name for name, each in source.weights.sources.items()}
    for name, format in {**recipe.linears, "tok_embeddings": recipe.embedding}.items():
        parameter = model.proj_out.weight if name == "output" else parameters[stored[f"{name}.weight"]]
        parameter.data = torch.tensor(weights.quantized(name, format).values()[: len(parameter)])
    tokens = np.random.default_rng(1).integers(0, 95, (1, 1))
    hidden, logits = expected(model, waves(4801), tokens)
    with webpte.load(tmp_path / "m.pte") as program:
        ours, *heard = program.method("encode").run([waves(4801)[None, None]], strict=True)
        assert np.abs(ours - hidden).max() < 1e-4
        result = program.method("decode")(tokens, np.array([0]), np.array([ours.shape[1]]), *heard)
    assert np.abs(result[0] - logits[0]).max() < 1e-4 * np.abs(logits).max()


def test_language_and_translation_are_refused(moonshine):
    for options in ({"language": "de"}, {"task": "translate"}):
        with raises(InputError, "one language", code="one_language"):
            moonshine(waves(4801), **options)


@pytest.mark.parametrize(
    ("file", "fields", "error", "values"),
    [
        ("config.json", {"encoder_num_key_value_heads": 2}, UnsupportedError, ["encoder_num_key_value_heads = 2"]),
        ("config.json", {"encoder_num_attention_heads": 8}, UnsupportedError, ["encoder_num_attention_heads = 8"]),
        ("config.json", {"decoder_hidden_act": "gelu"}, UnsupportedError, ["decoder_hidden_act"]),
        ("config.json", {"attention_bias": True}, UnsupportedError, ["attention_bias"]),
        ("config.json", {"new_rule": 1}, UnsupportedError, ["new_rule = 1"]),
        ("preprocessor_config.json", {"do_normalize": True}, UnsupportedError, ["do_normalize"]),
        ("preprocessor_config.json", {"feature_size": 2}, UnsupportedError, ["feature_size = 2"]),
        ("generation_config.json", {"num_beams": 5}, UnsupportedError, ["num_beams = 5"]),
    ],
)
def test_moonshine_unknown_settings_refused_by_name(tmp_path, file, fields, error, values):
    source = shutil.copytree(folder() / "moonshine", tmp_path / "moonshine")
    changed = source / file
    if "encoder_num_attention_heads" in fields:
        fields = {**fields, "encoder_num_key_value_heads": 8}
    changed.write_text(json.dumps(json.loads(changed.read_text()) | fields))
    with raises(error, *values):
        export_speech(source, tmp_path / "m.pte")


def test_moonshine_is_exported_without_torch_and_transformers(tmp_path):
    blocked = "import sys; sys.modules.update(torch=None, transformers=None, executorch=None)"
    code = f"{blocked}; from webpte.export import export_checkpoint; export_checkpoint(sys.argv[1], 'm.pte')"
    example_models.run_script(tmp_path, "-c", code, folder() / "moonshine")
    assert (tmp_path / "m.pte").read_bytes() == (folder() / "moonshine.pte").read_bytes()
