"""A conversation about images: the logits and the greedy tokens of transformers, however an image is passed."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.conversations import TOLERANCE, check_conversation, image, text
from tests.support.harness.errors import raises
from tests.support.models import example_models
from tests.support.models.tiny_vlm import CONTEXT, PROCESSOR, ROWS, SIDE, picture
from webpte import cli
from webpte.batch import Predictor
from webpte.builder import build_program
from webpte.errors import ContextFullError, FormatError, InputError, UnsupportedError
from webpte.llm import LLM

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "no image": [{"role": "user", "content": "what is it?"}],
    "one image": [{"role": "user", "content": [image(1), text("what is it?")]}],
    "two images": [
        {"role": "user", "content": [image(1), text("and"), image(2), text("which?")]},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": [text("sure?")]},
    ],
}


@pytest.fixture(scope="module")
def checkpoint():
    from transformers import SmolVLMForConditionalGeneration

    folder = example_models.vlm() / "checkpoint"
    return folder, SmolVLMForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def program():
    return example_models.vlm() / "vlm.pte"


@pytest.fixture
def llm(program):
    with LLM.load(program) as model:
        model.stop_tokens = frozenset()
        yield model


def transformers_inputs(folder: Path, messages: list[Any]) -> dict[str, Any]:
    """Return the inputs that the processors of transformers make of messages."""
    from transformers import PreTrainedTokenizerFast
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    fields = {name: value for name, value in PROCESSOR.items() if name != "image_processor_type"}
    processor = SmolVLMImageProcessorPil(**fields, return_row_col_info=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    template = (folder / "chat_template.jinja").read_text()
    parts = [m["content"] if isinstance(m["content"], list) else [text(m["content"])] for m in messages]
    listed = [{**message, "content": content} for message, content in zip(messages, parts, strict=True)]
    prompt = tokenizer.apply_chat_template(listed, chat_template=template, tokenize=False)
    images = [part["image"] for content in parts for part in content if part["type"] == "image"]
    pixels = []
    for each in images:
        prepared = processor(each, return_tensors="pt")
        names = ("<fake_token_around_image>", "\0", "<global-img>")
        rows, columns = prepared["rows"][0][0], prepared["cols"][0][0]
        prompt = prompt.replace("<image>", get_image_prompt_string(rows, columns, ROWS, *names), 1)
        pixels.append(prepared["pixel_values"][0])
    tokens = tokenizer(prompt.replace("\0", "<image>"), return_tensors="pt", add_special_tokens=False)["input_ids"]
    return {"input_ids": tokens, **({"pixel_values": torch.cat(pixels)[None]} if pixels else {})}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation_logits_and_greedy_tokens_equal_transformers(name, checkpoint, llm):
    folder, model = checkpoint
    inputs = transformers_inputs(folder, CONVERSATIONS[name])
    check_conversation(llm, model, CONVERSATIONS[name], inputs)


def test_vision_encoder_rows_equal_transformers(checkpoint, program):
    _, model = checkpoint
    pixels = np.random.default_rng(3).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)
    with torch.no_grad():
        features = model.get_image_features(torch.tensor(pixels)[None])
    expected = np.array([row.numpy() for row in getattr(features, "pooler_output", features)]).reshape(1, ROWS, -1)
    with webpte.load(program) as loaded:
        rows = np.array(loaded.method("vision_encoder")(pixels))
    assert rows.shape == (1, ROWS, 64)
    assert np.abs(rows - expected).max() <= TOLERANCE


def test_second_question_about_an_image_computes_only_new_tokens(llm):
    first, second = ([{"role": "user", "content": [image(1), text(question)]}] for question in ("what?", "why?"))
    llm.generate(first, max_new_tokens=4).result()
    answer = llm.generate(second, max_new_tokens=4)
    answer.result()
    computed = answer.usage.prompt_tokens - answer.usage.reused_tokens
    assert computed == len("y?") + 1 + len("\nAssistant:") and answer.usage.prompt_tokens > 7 * ROWS


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


def test_chat_asks_about_images_and_later_questions_are_about_them_too(llm):
    chat = llm.chat(max_new_tokens=4)
    chat.ask("what?", images=[picture(1)]).result()
    answer = chat.ask("why?")
    answer.result()
    assert [type(message["content"]) for message in chat.messages] == [list, str, str, str]
    assert answer.usage.reused_tokens > 7 * ROWS
    with raises(InputError, code="wrong_type"):
        chat.ask("what?", images="cat.jpg")


def encoded(seed: int) -> bytes:
    file = io.BytesIO()
    picture(seed).save(file, "PNG")
    return file.getvalue()


FORMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "path": lambda folder: {"path": folder / "image.png"},
    "bytes": lambda folder: {"image": encoded(1)},
    "array": lambda folder: {"image": np.asarray(picture(1))},
    "url": lambda folder: {"url": "data:image/png;base64," + base64.b64encode(encoded(1)).decode()},
    "image_url": lambda folder: {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + base64.b64encode(encoded(1)).decode()},
    },
}


def test_image_in_any_form_is_the_same_prompt(llm, tmp_path):
    (tmp_path / "image.png").write_bytes(encoded(1))
    expected = llm.generate([{"role": "user", "content": [image(1)]}]).prompt
    for make in FORMS.values():
        part = {"type": "image", **make(tmp_path)}
        assert llm.generate([{"role": "user", "content": [part]}]).prompt == expected


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({}, "image_source"),
        ({"path": "a.png", "image": b""}, "image_source"),
        ({"path": "missing.png"}, "unreadable"),
        ({"image": b"GIF89a"}, "unreadable"),
        ({"image": np.zeros((4, 4), np.uint8)}, "wrong_array"),
        ({"image": 7}, "wrong_type"),
        ({"url": "https://example.com/a.png"}, "image_address"),
        ({"url": "data:image/png;base64,?"}, "image_address"),
        ({"image_url": {"url": None}}, "image_address"),
    ],
)
def test_image_that_cannot_be_read_is_refused(llm, part, code):
    with raises(InputError, "messages[0].content[1]", code=code):
        llm.generate([{"role": "user", "content": [text("see"), {"type": "image", **part}]}])


def test_images_beyond_limits_are_refused_before_they_are_decoded(llm, monkeypatch):
    monkeypatch.setattr("webpte.llm.image_prompts.MAX_IMAGE_BYTES", 8)
    with raises(InputError, 9, 8, code="image_bytes"):
        llm.generate([{"role": "user", "content": [{"type": "image", "image": bytes(9)}]}])
    with raises(InputError, 9, 8, code="image_bytes"):
        llm.generate([{"role": "user", "content": [{"type": "image", "url": "data:;base64," + "A" * 12}]}])
    with raises(ContextFullError, CONTEXT):
        llm.generate([{"role": "user", "content": [{"type": "image", "path": "missing"}] * (CONTEXT // ROWS)}])


def test_image_token_spelled_in_a_text_is_text(llm):
    answer = llm.generate([{"role": "user", "content": [image(1), text("<image>")]}])
    assert answer.prompt[-len("<image>") - len("\nAssistant:") - 1 :][:7] == tuple(llm.tokenizer.encode("<image>"))
    with raises(InputError, 1, 2, code="image_count"):
        llm.generate([{"role": "user", "content": [image(1), text("<image>")]}], parse_special=True)


def test_image_for_a_model_without_encoder_is_refused(program, tmp_path):
    for file in program.parent.glob("vlm.*"):
        if file.name != "vlm.preprocessor_config.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with LLM.load(tmp_path / "vlm.pte") as model, raises(InputError, code="no_images"):
        model.generate(CONVERSATIONS["one image"])
    other = {**PROCESSOR, "max_image_size": {"longest_edge": 8}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(other))
    with raises(FormatError, 8, code="other_export"):
        LLM.load(tmp_path / "vlm.pte")


@pytest.mark.slow
def test_quantized_program_has_an_encoder_in_8_bits(checkpoint, tmp_path):
    folder, _ = checkpoint
    with LLM.load(build_program(folder, tmp_path / "vlm.pte", max_context=CONTEXT, max_tokens=24)) as model:
        answer = model.generate(CONVERSATIONS["one image"], max_new_tokens=4)
        answer.result()
        assert len(answer.tokens) == 4
    names = {
        span for span in webpte.container.parse_program(webpte.container.MappedFile(tmp_path / "vlm.pte")).named_data
    }
    assert {"vision.layers.1.wq.codes", "vision.connector.codes", "vision.patches.weight"} <= names


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_act", "relu"), ("num_channels", 1), ("patch_size", 5), ("num_attention_heads", 3), ("extra", 1)],
)
def test_vision_tower_with_other_fields_is_refused(checkpoint, tmp_path, field, value):
    folder, _ = checkpoint
    for file in folder.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"][field] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises((FormatError, UnsupportedError)):
        build_program(tmp_path, tmp_path / "vlm.pte")


def test_commands_answer_about_an_image_as_python_does(llm, program, tmp_path, capsys, monkeypatch):
    (tmp_path / "image.png").write_bytes(encoded(1))
    messages = [{"role": "user", "content": [image(1), text("what is it?")]}]
    answer = llm.generate(messages, max_new_tokens=8, temperature=0)
    options = [str(program), "--max-new-tokens", "8", "--temperature", "0"]
    expected = str(answer)
    assert cli.main(["generate", *options, "what is it?", "--image", str(tmp_path / "image.png"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["text"] == expected and report["usage"]["prompt_tokens"] == answer.usage.prompt_tokens
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{tmp_path}/image.png what is it?\n"))
    assert cli.main(["chat", *options]) == 0
    assert expected in capsys.readouterr().out


def test_batch_with_a_column_of_images_has_the_answers_of_python(llm, program):
    settings = {"max_new_tokens": 8, "temperature": 0}
    asked = [[{"role": "user", "content": [image(seed), text("what is it?")]}] for seed in (1, 2)]
    expected = [str(llm.generate(messages, **settings)) for messages in asked]
    rows = {"text": ["what is it?"] * 4, "picture": [encoded(1), {"bytes": encoded(2)}, None, b"GIF89a"]}
    with Predictor(program, image_column="picture", settings=settings) as predictor:
        result = predictor(rows)
    assert result["generated"] == [*expected, None, None]
    assert "null" in result["error"][2] and "GIF" in result["error"][3]
