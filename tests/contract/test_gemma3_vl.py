"""Gemma 3 with images: the logits and the greedy tokens of transformers, where rows of an image see each other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import webpte
from tests.studies.families.states import GPU
from tests.support.harness.conversations import TOLERANCE, character_ids, check_conversation, image, rendered, text
from tests.support.harness.errors import raises
from tests.support.models.tiny_gemma3_vl import PROCESSOR, ROWS, SHOWN, SIDE, SPECIAL, write_gemma3_vl
from tests.support.models.tiny_vlm import picture
from webpte.builder import build_program
from webpte.builder.context import choose_sizes
from webpte.bundles.methods import planned
from webpte.bundles.program_kinds import calls, prefill_rows
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.errors import FormatError, InputError, UnsupportedError
from webpte.fusion.batching import with_sampled_slots
from webpte.fusion.bidirectional_rows import with_bidirectional_rows
from webpte.graph import Graph
from webpte.llm import LLM
from webpte.llm.engine.bundled_runner import BundledRunner
from webpte.llm.image_processor import image_processor

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "no image": [{"role": "user", "content": "what is it?"}],
    "one image": [{"role": "user", "content": [image(1, 24, 40), text("what is it?")]}],
    "two images": [
        {"role": "user", "content": [text("see"), image(1, 40, 24), image(2, 9, 30), text("which?")]},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": [text("sure?")]},
    ],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gemma3-vl")
    return folder, write_gemma3_vl(folder)


@pytest.fixture(scope="module")
def program(checkpoint):
    folder, _ = checkpoint
    return build_program(folder, folder / "vlm.pte", quantize=None, max_context=200, max_tokens=24)


@pytest.fixture(scope="module")
def llm(program):
    with LLM.load(program) as model:
        model.stop_tokens = frozenset()
        yield model


def theirs(images: list[Any]) -> Any:
    """Return the pixels of transformers' processor for images, (N, 3, H, W)."""
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    fields = {name: value for name, value in PROCESSOR.items() if name != "image_processor_type"}
    return Gemma3ImageProcessorPil(**fields)(images, return_tensors="pt")["pixel_values"]


def transformers_inputs(messages: list[Any]) -> dict[str, Any]:
    prompt, images = rendered(messages, SHOWN)
    shown = f"\n\n{SHOWN}{'<image_soft_token>' * ROWS}<end_of_image>\n\n"
    tokens = torch.tensor([character_ids(prompt.replace(SHOWN, shown), SPECIAL)])
    if not images:
        return {"input_ids": tokens}
    kinds = (tokens == character_ids("<image_soft_token>", SPECIAL)[0]).long()
    return {"input_ids": tokens, "token_type_ids": kinds, "pixel_values": theirs(images)}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation_logits_and_greedy_tokens_equal_transformers(name, checkpoint, llm):
    _, model = checkpoint
    check_conversation(llm, model, CONVERSATIONS[name], transformers_inputs(CONVERSATIONS[name]))


@pytest.mark.slow
def test_conversation_by_the_kernels_of_a_gpu_equals_transformers(checkpoint, program, monkeypatch):
    """Rows of a prompt are computed in tiles then."""
    monkeypatch.setenv("WEBPTE_DEVICE", "gpu")
    _, model = checkpoint
    messages = CONVERSATIONS["two images"]
    with LLM.load(program, kv_cache="f32") as llm:
        llm.stop_tokens = frozenset()
        check_conversation(llm, model, messages, transformers_inputs(messages))


def dispatches(program: webpte.Program, bidirectional: bool) -> list[int]:
    """Return the dispatches of a decode step and of a prompt on a GPU."""

    def rewrite(graph: Graph) -> Graph:
        slotted = with_sampled_slots(graph, 1)
        return with_bidirectional_rows(slotted) if bidirectional else slotted

    numbers = []
    for rows in (1, 16):
        tokens, places, *rest = next(call for call in calls(1, 16, 96) if call[0].shape[1] == rows)
        mapping = np.pad(places, ((0, 0), (0, 2))) if bidirectional else places
        ((_, schedule),) = planned(program, "forward", GPU, [(tokens, mapping, *rest)], rewrite).known()
        numbers.append(len(schedule.dispatches))
    return numbers


def test_rows_that_see_each_other_take_no_more_dispatches(program):
    with webpte.load(program) as loaded:
        assert dispatches(loaded, bidirectional=True) == dispatches(loaded, bidirectional=False)


def test_vision_encoder_rows_equal_transformers(checkpoint, program):
    _, model = checkpoint
    pixels = theirs([picture(4, 30, 50)])
    with torch.no_grad():
        expected = model.get_image_features(pixels).pooler_output[0].numpy()
    with webpte.load(program) as loaded:
        rows = np.array(loaded.method("vision_encoder")(pixels.numpy()))
    assert rows.shape == (1, ROWS, 64)
    assert np.abs(rows[0] - expected).max() <= TOLERANCE


def test_pixels_equal_transformers():
    """Of 50 random sizes: values within a grey level."""
    ours = image_processor("here", PROCESSOR)
    for height, width in np.random.default_rng(3).integers(3, 180, (50, 2)):
        shown = picture(int(height) * 1000 + int(width), int(height), int(width))
        (pixels,) = ours(shown).pixels
        assert pixels.shape == (3, SIDE, SIDE)
        assert np.abs(ours.normalized(pixels) - theirs([shown])[0].numpy()).max() <= 1.001 / 255 / 0.5


def asked(question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [text("see"), image(1, 24, 40), text(question)]}]


def test_second_question_about_an_image_computes_only_its_own_rows(llm):
    llm.reset_prefix_cache()
    reused = []
    for question in ("what?", "how many?"):
        answer = llm.generate(asked(question), max_new_tokens=4)
        answer.result()
        reused.append(answer.usage.reused_tokens)
    # "User:see", two line ends, the token before the image, its rows, the token after them, two line ends.
    assert reused == [0, len("User:see") + 2 + 1 + ROWS + 1 + 2]


def test_prompt_that_ends_with_an_image_computes_all_of_it_again(llm):
    """The logits after its last row are needed, and the rows see each other."""
    llm.reset_prefix_cache()
    talk = llm.sequence()
    talk.generate(asked("?"), max_new_tokens=1).result()
    before = talk.tokens[: len("User:see") + 2 + 1]
    answers = []
    for _ in range(2):
        answer = llm.generate(tokens=[*before, *talk._state.encoder_inputs.values()], max_new_tokens=4)
        answer.result()
        answers.append(answer.tokens)
        assert answer.usage.reused_tokens == len(before)
    assert answers[0] == answers[1]


def test_rewind_into_an_image_goes_back_to_its_beginning(llm):
    talk = llm.sequence()
    talk.generate(asked("what?"), max_new_tokens=1).result()
    before, after = talk.tokens, [40, 41, 42]
    begin = len("User:see") + 2 + 1
    talk.rewind(len(before) - begin - ROWS)  # to the end of the image
    assert talk.position == begin + ROWS
    after_image = talk.logits(after, every=True)
    talk.rewind(len(after) + 2)  # into it
    assert talk.tokens == before[:begin]
    without = talk.logits(after, every=True)
    fresh = llm.sequence().logits([*before[:begin], *after], every=True)[begin:]
    assert (fresh == without).all() and np.abs(after_image - without).max() > 0.01


def test_requests_with_and_without_images_have_the_tokens_of_each_alone(llm):
    conversations = [*CONVERSATIONS.values(), asked("one?"), asked("two?"), *CONVERSATIONS.values()]
    alone = []
    for conversation in conversations:
        llm.reset_prefix_cache()
        answer = llm.generate(conversation, max_new_tokens=8)
        answer.result()
        alone.append(answer.tokens)
    llm.reset_prefix_cache()
    together = llm.generate_many(conversations, max_new_tokens=8)
    assert len(alone) == 8 and [answer.tokens for answer in together] == alone


def test_single_runner_of_bidirectional_images_refuses_images(program, monkeypatch):
    def refuse(*args: Any) -> None:
        raise UnsupportedError("not here", code="mixed_tokens")

    monkeypatch.setattr("webpte.llm.engine.runner.with_sampled_slots", refuse)
    with LLM.load(program) as model:
        model.generate(CONVERSATIONS["no image"], max_new_tokens=2).result()
        with raises(InputError, code="no_images"):
            model.generate(CONVERSATIONS["one image"])


@pytest.mark.slow
def test_bundle_has_the_tokens_of_its_program(llm, program, tmp_path):
    """Also of a prompt that ends with an image: its last row is sampled, and seen by the rows before it."""
    with webpte.load(program) as loaded:
        webpte.bundle(loaded, tmp_path / "site", sequences=2)
    prompts: list[dict[str, Any]] = [{"prompt": messages} for messages in CONVERSATIONS.values()]
    talk = llm.sequence()
    talk.generate(asked("?"), max_new_tokens=1).result()
    shown = [*talk._state.encoder_inputs.values()]
    prompts += [{"tokens": [*talk.tokens[: len("User:see") + 2 + 1], *shown]}, {"tokens": [5, *shown, *shown, 7, 8]}]
    prompts = [{**prompt, "max_new_tokens": 8, "repetition_penalty": 9.0} for prompt in prompts]
    llm.reset_prefix_cache()
    expected = [answer.tokens for answer in llm.generate_many(prompts)]
    assert len({*map(tuple, expected)}) == len(prompts)  # so none of them has failed
    with LLM.load(tmp_path / "site") as bundle:
        bundle.stop_tokens = frozenset()
        assert isinstance(bundle.engine.runner, BundledRunner)
        for _ in range(2):  # then with the images in the prefix cache
            assert [answer.tokens for answer in bundle.generate_many(prompts)] == expected


def test_bundle_has_steps_for_an_image(program, tmp_path, monkeypatch):
    assert prefill_rows(200, 128) == [8, 16, 32, 64, 128] and prefill_rows(200, 149) == [8, 16, 32, 64, 128, 149]
    monkeypatch.setattr("webpte.bundles.program_kinds._sizes", lambda program: (ROWS - 1, 99))
    with webpte.load(program) as loaded, raises(FormatError, ROWS, ROWS - 1, code="other_export"):
        webpte.bundle(loaded, tmp_path / "site")


def test_calls_have_tokens_for_an_image_and_others(checkpoint, tmp_path):
    folder, _ = checkpoint
    source = read_checkpoint(folder)
    assert choose_sizes(source, 200).max_tokens == 200
    with raises(InputError, ROWS + 1, code="max_tokens"):
        choose_sizes(source, 200, ROWS)
    with raises(InputError, ROWS + 1, code="max_context"):
        choose_sizes(source, ROWS)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        (None, "mm_tokens_per_image", 8),
        (None, "mm_tokens_per_image", 16),
        ("vision_config", "image_size", 23),
        ("vision_config", "num_attention_heads", 5),
        ("vision_config", "hidden_act", "gelu"),
        ("vision_config", "num_channels", 1),
        ("vision_config", "extra", 1),
    ],
)
def test_tower_with_other_fields_is_refused(part, field, value, checkpoint, tmp_path):
    folder, _ = checkpoint
    for name in ("tokenizer.json", "preprocessor_config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (config if part is None else config[part])[field] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises((FormatError, UnsupportedError)):
        read_checkpoint(tmp_path)
