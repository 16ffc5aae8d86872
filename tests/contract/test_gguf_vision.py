"""The image encoder beside a GGUF model gives the program of the checkpoint that both files were converted from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.harness.conversations import image, text
from tests.support.harness.errors import raises
from tests.support.models import example_models
from tests.support.models.gguf_vlm import write_encoder, write_model
from tests.support.models.tiny_gemma3_vl import BLOCK as GEMMA3_BLOCK
from tests.support.models.tiny_gemma3_vl import write_gemma3_vl
from tests.support.models.tiny_lfm2_vl import BLOCK, PATCH, write_lfm2_vl
from tests.support.models.tiny_vlm import SIDE, build_vlm, picture
from webpte.builder.programs import cached_program
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.gguf_vision import read_vision_beside
from webpte.checkpoints.vision_tower import Vision
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.llm import LLM
from webpte.llm.image_processor import image_processor
from webpte.sources import beside

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

MESSAGES = [{"role": "user", "content": [image(1), text("what is it?")]}]


@pytest.fixture(scope="module")
def checkpoint():
    return example_models.vlm() / "checkpoint"


@pytest.fixture
def model(checkpoint, tmp_path):
    return write_model(checkpoint, tmp_path / "smolvlm.gguf")


def vision(path: Path) -> Vision:
    read = read_checkpoint(path).vision
    assert read is not None
    return read


def logits(program: Path) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the tokens of the prompt with an image, and the logits after it and after each of some tokens."""
    with LLM.load(program) as llm:
        llm.stop_tokens = frozenset()
        talk = llm.sequence()
        answer = talk.generate(MESSAGES, max_new_tokens=1)
        answer.result()
        return answer.prompt, np.array(talk.logits([40, 41, 42], every=True))


def test_program_of_gguf_files_has_the_logits_of_the_folder(checkpoint, model, tmp_path):
    write_encoder(checkpoint, tmp_path / "mmproj-smolvlm-f32.gguf")
    tokens, ours = logits(build_vlm(model, tmp_path / "vlm.pte"))
    expected_tokens, expected = logits(checkpoint.parent / "vlm.pte")
    assert tokens == expected_tokens
    assert np.abs(ours - expected).max() <= 1e-5
    assert np.ptp(expected) > 1


@pytest.mark.parametrize("older", [False, True])
def test_encoder_has_the_weights_and_the_processor_of_the_folder(checkpoint, model, tmp_path, older):
    write_encoder(checkpoint, tmp_path / "SmolVLM.MMPROJ-F32.gguf", older=older)
    ours, expected = vision(model), vision(checkpoint)
    assert image_processor("ours", ours.processor) == image_processor("expected", expected.processor)
    for name in expected.weights.sources:
        np.testing.assert_array_equal(ours.weights.read(name), expected.weights.read(name), name)
    assert ours.weights.sources.keys() == expected.weights.sources.keys()


def test_encoder_of_lfm2_vl_has_the_weights_of_the_folder_and_published_tiles(tmp_path):
    write_lfm2_vl(tmp_path)
    write_encoder(tmp_path, tmp_path / "mmproj.gguf")
    ours, expected = read_vision_beside(tmp_path / "lfm2.gguf", 64, ["<image>"]), vision(tmp_path)
    assert ours is not None
    assert ours.tower.norm_eps == pytest.approx(expected.tower.norm_eps, rel=1e-7)  # f32 in the file
    sizes = replace(ours.tower, max_rows=expected.tower.max_rows, norm_eps=expected.tower.norm_eps)
    assert sizes == expected.tower
    for name in expected.weights.sources:
        np.testing.assert_array_equal(ours.weights.read(name), expected.weights.read(name), name)
    processor = image_processor("ours", ours.processor)
    fields = {"encoder_patch_size": PATCH, "downsample_factor": BLOCK, "min_image_tokens": 64, "max_image_tokens": 256}
    fields |= {"tile_size": 512, "min_tiles": 2, "max_tiles": 10, "resample": 2}
    assert processor == image_processor("expected", {"image_processor_type": "Lfm2VlImageProcessor", **fields})
    assert ours.tower.max_rows == (512 // (PATCH * BLOCK)) ** 2


def test_encoder_of_gemma3_has_the_weights_and_the_processor_of_the_folder(tmp_path):
    write_gemma3_vl(tmp_path)
    write_encoder(tmp_path, tmp_path / "mmproj.gguf", {"clip.vision.projector.scale_factor": GEMMA3_BLOCK})
    ours, expected = read_vision_beside(tmp_path / "gemma3.gguf", 64, ["<image_soft_token>"]), vision(tmp_path)
    assert ours is not None
    sizes = [
        replace(each.tower, norm_eps=0.0, connector=replace(each.tower.connector, norm_eps=0.0))
        for each in (ours, expected)
    ]
    assert sizes[0] == sizes[1] and sizes[0].bidirectional
    for name in expected.weights.sources:
        np.testing.assert_array_equal(ours.weights.read(name), expected.weights.read(name), name)
    assert image_processor("ours", ours.processor) == image_processor("expected", expected.processor)


def test_encoder_without_a_size_of_the_whole_image_has_one_tile(checkpoint, model, tmp_path):
    write_encoder(checkpoint, tmp_path / "mmproj.gguf", {"clip.vision.preproc_image_size": None})
    processor = image_processor("ours", vision(model).processor)
    assert [tile.shape for tile in processor(picture(1)).pixels] == [(3, SIDE, SIDE)]


def test_cached_program_is_another_when_an_encoder_is_beside_the_model(checkpoint, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    alone = cached_program(model)
    write_encoder(checkpoint, tmp_path / "mmproj.gguf")
    together = cached_program(model)
    assert together != alone and together == cached_program(model)
    has_processor = {path: beside(path, "preprocessor_config.json") is not None for path in (alone, together)}
    assert has_processor == {alone: False, together: True}


def test_encoder_files_several_of_the_model_are_refused_by_name(checkpoint, model, tmp_path):
    for name in ("mmproj-f16.gguf", "mmproj-f32.gguf"):
        write_encoder(checkpoint, tmp_path / name)
    with raises(InputError, "mmproj-f16.gguf", "mmproj-f32.gguf", code="ambiguous_file"):
        read_checkpoint(model)


def test_encoder_of_another_model_is_left_out(checkpoint, tmp_path, caplog):
    plain = write_model(checkpoint, tmp_path / "plain.gguf", [f"<{number}>" for number in range(12)])
    write_encoder(checkpoint, tmp_path / "mmproj-smolvlm.gguf")
    write_encoder(checkpoint, tmp_path / "mmproj-wide.gguf", {"clip.vision.projection_dim": 65})
    assert read_checkpoint(plain).vision is None
    assert "mmproj-smolvlm.gguf (idefics3), mmproj-wide.gguf (idefics3)" in caplog.text


@pytest.mark.parametrize(("projector", "shown"), [("pixtral", "pixtral"), (None, "no projector")])
def test_encoder_of_another_kind_is_left_out(checkpoint, model, tmp_path, caplog, projector, shown):
    write_encoder(checkpoint, tmp_path / "mmproj.gguf", {"clip.projector_type": projector})
    assert read_checkpoint(model).vision is None
    assert f"mmproj.gguf ({shown})" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "kind", "code"),
    [
        ("clip.use_gelu", None, FormatError, "invalid_field"),
        ("clip.use_silu", True, UnsupportedError, "unsupported_field"),
        ("clip.has_audio_encoder", True, UnsupportedError, "unsupported_field"),
        ("clip.vision.feature_layer", 1, UnsupportedError, "unsupported_field"),
        ("clip.vision.image_mean", None, FormatError, "invalid_field"),
        ("clip.vision.patch_size", 3, UnsupportedError, "vision_size"),
        ("clip.vision.block_count", 1, UnsupportedError, "unknown_tensor"),
        ("clip.vision.block_count", 1 << 20, FormatError, "invalid_field"),
        ("clip.vision.feed_forward_length", 40, FormatError, "tensors"),
    ],
)
def test_encoder_with_other_fields_is_refused(checkpoint, model, tmp_path, key, value, kind, code):
    path = write_encoder(checkpoint, tmp_path / "mmproj.gguf", {key: value})
    with raises(kind, path.name, code=code):
        read_checkpoint(model)
