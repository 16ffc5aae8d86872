"""Qwen3.5 with images: the logits and the greedy tokens of transformers, whose rows have positions of three axes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.conversations import TOLERANCE, character_ids, check_conversation, image, rendered, text
from tests.support.harness.errors import raises
from tests.support.models.tiny_qwen3_5_vl import BLOCK, PATCH, PROCESSOR, ROWS, SHOWN, SPECIAL, write_qwen3_5_vl
from tests.support.models.tiny_vlm import picture
from webpte.builder import build_program
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.llm import LLM
from webpte.llm.image_processor import image_processor

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "no image": [{"role": "user", "content": "what is it?"}],
    "one image": [{"role": "user", "content": [image(1, 24, 40), text("what is it?")]}],
    "two images": [
        {"role": "user", "content": [text("see"), image(1, 40, 24), text("and"), image(2, 9, 30), text("which?")]},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": [text("sure?")]},
    ],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3-5-vl")
    return folder, write_qwen3_5_vl(folder)


@pytest.fixture(scope="module")
def program(checkpoint):
    folder, _ = checkpoint
    return build_program(folder, folder / "vlm.pte", quantize=None, max_context=200, max_tokens=24)


@pytest.fixture(scope="module")
def llm(program):
    with LLM.load(program) as model:
        model.stop_tokens = frozenset()
        yield model


def theirs(images: list[Any], **changes: Any) -> Any:
    """Return the inputs of transformers' processor for images."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    fields = {name: value for name, value in {**PROCESSOR, **changes}.items() if name != "image_processor_type"}
    return Qwen2VLImageProcessorPil(**fields)(images, return_tensors="pt")


def transformers_inputs(messages: list[Any]) -> dict[str, Any]:
    prompt, images = rendered(messages, SHOWN)
    if not images:
        return {"input_ids": torch.tensor([character_ids(prompt, SPECIAL)])}
    prepared = theirs(images)
    for _, height, width in prepared["image_grid_thw"].tolist():
        prompt = prompt.replace("<|image_pad|>", "\0" * (height * width // BLOCK**2), 1)
    tokens = torch.tensor([character_ids(prompt.replace("\0", "<|image_pad|>"), SPECIAL)])
    kinds = (tokens == character_ids("<|image_pad|>", SPECIAL)[0]).long()
    return {"input_ids": tokens, "mm_token_type_ids": kinds, **prepared}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation_logits_and_greedy_tokens_equal_transformers(name, checkpoint, llm):
    _, model = checkpoint
    check_conversation(llm, model, CONVERSATIONS[name], transformers_inputs(CONVERSATIONS[name]))


@pytest.mark.parametrize("size", [(8, 32), (16, 16), (48, 8), (24, 56)])
def test_vision_encoder_rows_equal_transformers(size, checkpoint, program):
    _, model = checkpoint
    shown = picture(4, *size)
    prepared = theirs([shown])
    with torch.no_grad():
        expected = model.get_image_features(prepared["pixel_values"], prepared["image_grid_thw"]).pooler_output[0]
    with webpte.load(program) as loaded:
        encoder = loaded.method("vision_encoder")
        ours = image_processor("here", PROCESSOR).for_encoder(
            "here", [tuple(each.bound or ()) for each in encoder.inputs]
        )
        (pixels,) = ours(shown).pixels
        rows = np.array(encoder(*ours.arguments(pixels)))
    assert rows.shape == (1, ours.rows(pixels, ROWS), 64)
    assert np.abs(rows[0] - expected.numpy()).max() <= TOLERANCE


def test_patches_equal_transformers():
    """Of 50 random sizes: as many patches, and values within a grey level."""
    ours = image_processor("here", PROCESSOR)
    for height, width in np.random.default_rng(3).integers(3, 180, (50, 2)):
        shown = picture(int(height) * 1000 + int(width), int(height), int(width))
        expected = theirs([shown])
        (pixels,) = ours(shown).pixels
        _, rows, columns = expected["image_grid_thw"][0].tolist()
        assert pixels.shape == (3, rows * PATCH, columns * PATCH)
        assert (ours.rows(pixels, ROWS), ours.columns(pixels)) == (rows * columns // BLOCK**2, columns // BLOCK)
        values = expected["pixel_values"].reshape(-1, 3, 2, PATCH, PATCH)[:, :, 0].numpy()
        split = ours.normalized(pixels).reshape(3, rows // 2, 2, PATCH, columns // 2, 2, PATCH)
        mine = split.transpose(1, 4, 2, 5, 0, 3, 6).reshape(values.shape)
        assert np.abs(mine - values).max() <= 1.001 / 255 / 0.5


def test_further_questions_about_an_image_compute_only_new_tokens(llm):
    """A recurrent state is kept after a prompt and after each image in it."""
    llm.reset_prefix_cache()
    turn = {"role": "user", "content": [image(1, 24, 40), text("what?")]}
    first = llm.generate([turn], max_new_tokens=4)
    first.result()
    later = [turn, {"role": "assistant", "content": "one"}, {"role": "user", "content": "sure?"}]
    others = [[{"role": "user", "content": [turn["content"][0], text(asked)]}] for asked in ("why?", "when?")]
    reused = []
    for messages in (later, *others):
        answer = llm.generate(messages, max_new_tokens=4)
        answer.result()
        reused.append(answer.usage.reused_tokens)
    image_end = first.usage.prompt_tokens - len("/what?/\nAssistant:")  # with a token before the text and one after it
    assert image_end > 15 and reused == [first.usage.prompt_tokens, image_end, image_end]


def test_requests_with_and_without_images_have_the_tokens_of_each_alone(llm):
    conversations = [CONVERSATIONS[name] for name in (*CONVERSATIONS, "one image", "no image") * 2][:8]
    alone = []
    for conversation in conversations:
        llm.reset_prefix_cache()
        answer = llm.generate(conversation, max_new_tokens=8)
        answer.result()
        alone.append(answer.tokens)
    llm.reset_prefix_cache()
    together = llm.generate_many(conversations, max_new_tokens=8)
    assert [answer.tokens for answer in together] == alone


def test_single_runner_of_several_axes_refuses_images(program, monkeypatch):
    def refuse(*args: Any) -> None:
        raise UnsupportedError("not here", code="mixed_tokens")

    monkeypatch.setattr("webpte.llm.engine.runner.with_sampled_slots", refuse)
    with LLM.load(program) as model:
        model.generate(CONVERSATIONS["no image"], max_new_tokens=2).result()
        with raises(InputError, code="no_images"):
            model.generate(CONVERSATIONS["one image"])


def test_bundle_is_refused_if_pages_cannot_prepare_its_images(program, tmp_path, monkeypatch):
    monkeypatch.setattr("webpte.llm.image_processors.qwen2_vl.GridProcessor.page_kind", "")
    with webpte.load(program) as loaded, raises(UnsupportedError, "GridProcessor", code="image_processor"):
        webpte.bundle(loaded, tmp_path / "site")


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("vision_config", "deepstack_visual_indexes", [1]),
        ("vision_config", "in_channels", 1),
        ("vision_config", "num_position_embeddings", 8),
        ("vision_config", "num_heads", 16),
        ("vision_config", "rope_parameters", {"rope_theta": 5.0}),
        ("vision_config", "extra", 1),
        ("text_config", "rope_parameters", {"rope_type": "default", "mrope_section": [1, 2]}),
        ("text_config", "rope_parameters", {"rope_type": "default", "mrope_interleaved": False}),
    ],
)
def test_tower_with_other_fields_is_refused(part, field, value, checkpoint, tmp_path):
    folder, _ = checkpoint
    for file in folder.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config[part][field] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises((FormatError, UnsupportedError)):
        build_program(tmp_path, tmp_path / "vlm.pte")


def test_image_larger_than_the_encoder_is_resized_to_it():
    ours = image_processor("here", PROCESSOR)
    inputs = [(6, 4 * 48), (6, 4 * 9), (6, 4 * 8), (6, 4 * 8)]
    (pixels,) = ours.for_encoder("here", inputs)(picture(1, 40, 90)).pixels
    assert pixels.shape == (3, 8, 24)
    with raises(FormatError, "192", code="other_export"):
        ours.for_encoder("here", [(6, 4 * 27), *inputs[1:]])


@pytest.mark.parametrize(("height", "width"), [(9000, 2), (3, 3)])
def test_image_that_no_blocks_approximate_is_refused(height, width):
    fields = {**PROCESSOR, "size": {"shortest_edge": 65, "longest_edge": 65}}
    with raises(InputError, f"{width} x {height}", code="image_proportions"):
        image_processor("here", fields)(picture(1, height, width))


@pytest.mark.parametrize(
    ("field", "value"), [("size", 5), ("patch_size", 0), ("merge_size", "2"), ("min_pixels", True), ("max_pixels", -1)]
)
def test_grid_processor_other_declaration_is_refused(field, value):
    with raises(FormatError, field, code="invalid_field"):
        image_processor("here", {**PROCESSOR, field: value})
