"""Chats about images in a page and in Node: pixels, tokens and computed rows are those of Python."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image
from playwright.sync_api import Browser

import webpte
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.gate import slow_but
from tests.support.harness.node import ask_node, node_page
from tests.support.harness.site_server import serving
from tests.support.models import example_models, tiny_gemma3_vl, tiny_lfm2_vl, tiny_qwen3_5_vl, tiny_vlm
from tests.support.models.tiny_vlm import picture
from webpte.builder import build_program
from webpte.image_files import open_image
from webpte.llm import LLM
from webpte.llm.image_processor import FILTERS, ImageProcessor, image_processor

from .calls import Host, load
from .conftest import WEB

# Versions before 13 resize tall images in another order.
MAX_GREY_LEVELS = 0 if int(PIL.__version__.partition(".")[0]) >= 13 else 1
PROCESSORS: dict[str, tuple[dict[str, Any], list[tuple[int, ...]]]] = {
    "tiles": (tiny_vlm.PROCESSOR, [(1, 3, 16, 16)]),
    "tiles of odd sizes": (
        {**tiny_vlm.PROCESSOR, "size": {"longest_edge": 51}, "max_image_size": {"longest_edge": 17}},
        [(1, 3, 17, 17)],
    ),
    "one tile": ({**tiny_vlm.PROCESSOR, "do_image_splitting": False}, [(1, 3, 16, 16)]),
    "patches": (tiny_lfm2_vl.PROCESSOR, [(6, 192), (6, 36)]),
    "grid": (tiny_qwen3_5_vl.PROCESSOR, [(24, 192), (24, 36), (24, 32), (24, 32)]),
    "grid of other sides": (
        {**tiny_qwen3_5_vl.PROCESSOR, "patch_size": 3, "merge_size": 3, "min_pixels": 1600, "max_pixels": 4900},
        [(60, 243), (60, 225), (60, 108), (60, 108)],
    ),
    "square": (
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 14, "width": 14}},
        [(1, 3, 14, 14)],
    ),
}


def rgba(image: Any) -> dict[str, Any]:
    """Return an image as the player takes pixels, in base64."""
    data = np.asarray(image.convert("RGBA")).tobytes()
    return {"width": image.width, "height": image.height, "data": base64.b64encode(data).decode()}


def decoded(array: dict[str, Any], dtype: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(array["data"]), dtype).reshape(array["dims"])


def check_prepared(processor: ImageProcessor, images: list[Any], max_rows: int) -> None:
    """Compare what the player makes of images with what Python does."""
    asked = {"processor": processor.declaration(), "maxRows": max_rows, "images": [rgba(image) for image in images]}
    for image, prepared in zip(images, ask_node("images.mjs", "prepared", asked), strict=True):
        tiles = processor(open_image(image, "image"))
        assert prepared["text"] == processor.text(tiles)
        for pixels, tile in zip(tiles.pixels, prepared["tiles"], strict=True):
            difference = np.abs(pixels.astype(int) - decoded(tile, "uint8"))
            assert difference.max() <= MAX_GREY_LEVELS, image.size
            assert tile["rows"] == processor.rows(pixels, max_rows)
            for expected, got in zip(processor.arguments(pixels), tile["inputs"], strict=True):
                np.testing.assert_allclose(decoded(got, "float32"), expected, atol=2 * MAX_GREY_LEVELS / 255 + 1e-6)


@pytest.mark.parametrize("name", PROCESSORS)
def test_prepared_images_of_random_sizes_equal_python(name):
    fields, inputs = PROCESSORS[name]
    processor = image_processor("test", fields).for_encoder("test", inputs)
    sizes = np.random.default_rng(5).integers(13, 90, (20, 2))
    check_prepared(processor, [picture(at, *map(int, size)) for at, size in enumerate(sizes)], 4)


@pytest.mark.parametrize("resample", range(len(FILTERS)), ids=FILTERS)
def test_filter_equals_pillow(resample):
    fields = {**PROCESSORS["square"][0], "resample": resample}
    images = [picture(1, 40, 9), picture(2, 5, 31), picture(3, 14, 14)]
    check_prepared(image_processor("test", fields), images, 1)


def test_transparent_image_equals_python():
    images = [picture(seed, 30, 20).convert("RGBA") for seed in range(2)]
    for image in images:
        image.putalpha(Image.fromarray(np.random.default_rng(3).integers(0, 256, (30, 20), np.uint8)))
    check_prepared(image_processor("test", PROCESSORS["square"][0]), images, 1)


# -- conversations ----------------------------------------------------------------------------------------------------


def image(seed: int) -> dict[str, Any]:
    return {"type": "image", "image": picture(seed)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "no image": [{"role": "user", "content": "what is it?"}],
    "one image": [{"role": "user", "content": [image(1), text("what <image> is it?")]}],
    "two images": [
        {"role": "user", "content": [image(1), text("and"), image(2), text("which?")]},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": [text("sure?")]},
    ],
}
PENALTY = 9.0  # or a tiny model repeats a token, whatever it saw
SETTINGS = {"max_tokens": 12, "repetition_penalty": PENALTY}
ASK = """async ([messages, settings]) => {
  for (const { content } of messages)
    for (const part of Array.isArray(content) ? content : [])
      if (part.image?.data) part.image.data = Uint8Array.from(atob(part.image.data), (byte) => byte.charCodeAt(0));
  try {
    const asked = { messages, ...settings, return_token_ids: true };
    const { choices, usage } = await globalThis.model.chat.completions.create(asked);
    const counted = await globalThis.model.countTokens(messages);
    return { tokens: choices[0].token_ids, usage, counted };
  } catch ({ code, message }) {
    return { code, message };
  }
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vlm") / "site"
    with webpte.load(example_models.vlm() / "vlm.pte") as program:
        webpte.bundle(program, folder, name="vlm", sequences=1)
    return folder


@pytest.fixture(scope="module", params=slow_but(["page"], ["page", "node"]))
def chat(site: Path, browser: Browser, node_modules: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    """Yield a page or Node with the model loaded."""
    with serving({"web": WEB, "site": site}) as server:
        if request.param == "node":
            with node_page() as node:
                load(node, f"{server.origin}/site/")
                yield node
            return
        with browser.new_context() as context:
            page = context.new_page()
            page.set_default_timeout(TIMEOUT)
            page.goto(f"{server.origin}/blank.html")
            load(page, f"{server.origin}/site/")
            yield page


def for_player(messages: list[dict[str, Any]], *, files: bool = False) -> list[dict[str, Any]]:
    """Return messages with images as pixels, or as files in data addresses."""

    def part(each: dict[str, Any]) -> dict[str, Any]:
        if each["type"] == "text":
            return each
        if not files:
            return {"type": "image", "image": rgba(each["image"])}
        file = io.BytesIO()
        each["image"].save(file, "PNG")
        address = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        return {"type": "image_url", "image_url": {"url": address}}

    contents = [m["content"] if isinstance(m["content"], str) else [part(p) for p in m["content"]] for m in messages]
    return [{**message, "content": content} for message, content in zip(messages, contents, strict=True)]


def natively(llm: LLM, messages: list[dict[str, Any]]) -> tuple[list[int], int, int]:
    """Return the tokens of an answer, those of its prompt, and how many of these were computed before."""
    answer = llm.generate(messages, max_new_tokens=12, repetition_penalty=PENALTY, speculate=False)
    answer.result()
    return answer.tokens, answer.usage.prompt_tokens, answer.usage.reused_tokens


@pytest.fixture(scope="module")
def expected() -> list[tuple[list[int], int, int]]:
    with LLM.load(example_models.vlm() / "vlm.pte", max_sequences=1) as llm:
        return [natively(llm, messages) for messages in CONVERSATIONS.values()]


def test_bundle_in_python_has_the_tokens_of_its_program(site, expected):
    with LLM.load(site, max_sequences=1) as llm:
        assert [natively(llm, messages) for messages in CONVERSATIONS.values()] == expected


def test_conversations_have_the_tokens_of_python(chat, expected):
    for files in (False, True) if chat.evaluate("typeof document") == "object" else (False,):
        answers = [chat.evaluate(ASK, [for_player(m, files=files), SETTINGS]) for m in CONVERSATIONS.values()]
        assert [each.get("tokens", each) for each in answers] == [tokens for tokens, *_ in expected]
        assert [each["counted"] for each in answers] == [prompt for _, prompt, _ in expected]
        assert [each["usage"]["prompt_tokens"] for each in answers] == [prompt for _, prompt, _ in expected]


def test_second_question_about_an_image_computes_only_new_tokens(chat):
    first, second = (
        chat.evaluate(ASK, [for_player([{"role": "user", "content": [image(5), text(question)]}]), SETTINGS])
        for question in ("what?", "why?")
    )
    computed = second["usage"]["prompt_tokens"] - second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert computed == len("y?") + 1 + len("\nAssistant:")
    assert first["usage"]["prompt_tokens"] > 7 * tiny_vlm.ROWS


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"image": {"width": 2, "height": 2, "data": "AAAA"}},
        {"image": {"width": 1, "height": 1, "data": "AAAA"}, "url": "data:image/png;base64,"},
        {"image": 7},
        {"url": "https://example.com/a.png"},
        {"url": "data:image/png;base64,?"},
        {"image_url": {"url": "data:image/png;base64,AAAA"}},
    ],
)
def test_image_that_cannot_be_read_is_refused(chat, part):
    content = [text("see"), {"type": "image", **part}]
    answer = chat.evaluate(ASK, [[{"role": "user", "content": content}], SETTINGS])
    assert answer["code"] == "input" and "messages[0].content[1]" in answer["message"]


# -- other families ---------------------------------------------------------------------------------------------------

# By family: what writes a checkpoint, and the maximum tokens of its calls and one more. A call of Gemma 3 is too short
# for an image and the tokens before it. And what another question about an image computes: a recurrent state continues
# from its checkpoint after the image, and others continue after everything that the prompts share.
WRITERS = {
    "lfm2_vl": (tiny_lfm2_vl.write_lfm2_vl, 24, "at is it?/\nAssistant:"),
    "qwen3_5": (tiny_qwen3_5_vl.write_qwen3_5_vl, 24, "/what is it?/\nAssistant:"),  # a special token on both sides
    "gemma3": (tiny_gemma3_vl.write_gemma3_vl, 12, "at is it?/\nAssistant:"),
}


def question(*images: Any, words: str = "what is it?") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*({"type": "image", "image": each} for each in images), text(words)]}]


@pytest.fixture(scope="module", params=WRITERS)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """Return a program and its bundle, and how many tokens of the prompt about the second image a question with another
    beginning does not reuse."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp(request.param)
    write, max_tokens, computed = WRITERS[request.param]
    write(folder)
    program = build_program(folder, folder / "vlm.pte", quantize=None, max_context=200, max_tokens=max_tokens)
    with webpte.load(program) as loaded:
        webpte.bundle(loaded, folder / "site", sequences=1)
    return program, folder / "site", len(computed)


@pytest.mark.slow
def test_images_of_other_families_have_the_tokens_of_python(family, node_modules, browser):
    """The encoders of LFM2-VL and Qwen3.5 take images of any size. The rows of Qwen3.5 have positions of three axes,
    and those of Gemma 3 see each other."""
    program, site, computed = family
    small, large, third = picture(1, 24, 30), picture(2, 40, 56), picture(3, 9, 20)
    conversations = [question(), question(small), question(small, words="why?"), question(large, third)]
    expected = []
    for path in (program, site):
        with LLM.load(path, max_sequences=1) as llm:
            expected.append([natively(llm, messages) for messages in conversations])
    assert expected[0] == expected[1]
    tokens, prompts, reused = zip(*expected[0], strict=True)
    assert tokens[0] != tokens[1]

    def asked(host: Any) -> list[Any]:
        return [host.evaluate(ASK, [for_player(messages), SETTINGS]) for messages in conversations]

    answers = {}
    with serving({"web": WEB, "site": site}) as server:
        with node_page() as node:
            load(node, f"{server.origin}/site/")
            answers["node"] = asked(node)
        with browser.new_context() as context:
            page = context.new_page()
            page.set_default_timeout(TIMEOUT)
            page.goto(f"{server.origin}/blank.html")
            load(page, f"{server.origin}/site/")
            answers["page"] = asked(page)
    for host, each in answers.items():
        assert [answer.get("tokens", answer) for answer in each] == [*tokens], host
        assert [answer["usage"]["prompt_tokens"] for answer in each] == [*prompts], host
        cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in each]
        assert cached[2] == reused[2] == prompts[1] - computed, host
