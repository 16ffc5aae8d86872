"""Images in the chat page: dropped, pasted, chosen, removed, refused, kept, and sent with the next message."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import webpte
from tests.support.harness.browser import TIMEOUT
from tests.support.models import example_models, tiny_vlm
from webpte.llm import LLM

from .fake_pages import is_ready, open_settings, opened
from .test_chat_page import send, settled
from .test_pages_play import ask, plain, said
from .test_pages_play import opened as opened_bundle

SEES = "{ info: { language: { context_length: 512, images: {} } } }"
# Let the page have files: "drop" and "paste" are events with these.
GIVE = """([type, files]) => {
  const data = new DataTransfer();
  for (const { name, mimeType, content } of files) {
    const bytes = Uint8Array.from(atob(content), (byte) => byte.charCodeAt(0));
    data.items.add(new File([bytes], name, { type: mimeType }));
  }
  const init = { bubbles: true, cancelable: true };
  const event = type === "drop"
    ? new DragEvent("drop", { ...init, dataTransfer: data })
    : new ClipboardEvent("paste", { ...init, clipboardData: data });
  document.getElementById("message").dispatchEvent(event);
  return event.defaultPrevented;
}"""


def png(seed: int = 1) -> bytes:
    file = io.BytesIO()
    tiny_vlm.picture(seed).save(file, "PNG")
    return file.getvalue()


def give(page: Page, how: str, name: str, content: bytes, kind: str = "image/png") -> bool:
    """Drop or paste a file. Return whether the page took it."""
    file = {"name": name, "mimeType": kind, "content": base64.b64encode(content).decode()}
    taken: bool = page.evaluate(GIVE, [how, [file]])
    return taken


def address(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def test_images_are_sent_once_before_the_text_and_shown_in_the_conversation(browser):
    with opened(browser, "language", SEES) as page:
        is_ready(page)
        assert give(page, "drop", "cat.png", png(1)) and give(page, "paste", "dog.png", png(2))
        page.set_input_files("#file", {"name": "owl.png", "mimeType": "image/png", "buffer": png(3)})
        composer = page.locator("#composer")
        expect(composer.get_by_role("img")).to_have_count(3)
        expect(composer.get_by_role("img", name="dog.png")).to_be_visible()
        expect(page.locator("#announcer")).to_have_text("owl.png is added.")
        page.get_by_role("button", name="Remove dog.png").click()
        expect(composer.get_by_role("img")).to_have_count(2)
        send(page, "Who is it?")
        settled(page)
        expect(composer.get_by_role("img")).to_have_count(0)
        expect(page.locator("#log .user").get_by_role("img", name="cat.png")).to_be_visible()
        expect(page.locator("#log .user").get_by_role("img")).to_have_count(2)
        send(page, "Sure?")
        settled(page)
        first, _, second = page.evaluate("model.requests[1].messages")
        images = [{"type": "image_url", "image_url": {"url": address(png(seed))}} for seed in (1, 3)]
        assert first == {"role": "user", "content": [*images, {"type": "text", "text": "Who is it?"}]}
        assert second == {"role": "user", "content": "Sure?"}
        page.reload()
        is_ready(page)
        expect(page.locator("#log .user").get_by_role("img", name="owl.png")).to_be_visible()


def test_image_without_text_is_a_message(browser):
    with opened(browser, "language", SEES) as page:
        is_ready(page)
        page.press("#message", "Enter")
        expect(page.locator("#log article")).to_have_count(0)
        give(page, "drop", "cat.png", png())
        expect(page.locator("#composer").get_by_role("img")).to_have_count(1)
        page.press("#message", "Enter")
        settled(page)
        (message,) = page.evaluate("model.requests[0].messages")
        assert [part["type"] for part in message["content"]] == ["image_url"]


def test_file_that_is_no_image_is_an_error_until_the_next_image(browser):
    with opened(browser, "language", SEES) as page:
        is_ready(page)
        give(page, "drop", "notes.png", b"no image")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Invalid input")
        expect(alert).to_contain_text("notes.png")
        assert not give(page, "paste", "notes.txt", b"text", "text/plain")  # text is pasted as ever
        give(page, "drop", "cat.png", png())
        expect(page.locator("#composer").get_by_role("img")).to_have_count(1)
        expect(page.locator("#imageError")).to_be_hidden()


def test_model_that_reads_no_images_refuses_them(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        expect(page.locator("#attach")).to_be_hidden()
        give(page, "drop", "cat.png", png())
        expect(page.get_by_role("alert")).to_contain_text("takes no images")
        expect(page.locator("#composer").get_by_role("img")).to_have_count(0)


# -- the real player --------------------------------------------------------------------------------------------------

MAIN = """
import { start } from "./page.js";
import { load } from "./player/src/index.js";

globalThis.usages = [];
async function* recorded(chunks) {
  for await (const chunk of chunks) {
    if (chunk.usage) usages.push(chunk.usage);
    yield chunk;
  }
}
async function loadRecorded(options) {
  const model = await load(new URL("./", location.href).href, options);
  const { create } = model.chat.completions;
  model.chat.completions.create = async (request) => recorded(await create(request));
  return model;
}
start({ root: document, load: loadRecorded });
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vlm") / "site"
    with webpte.load(example_models.vlm() / "vlm.pte") as program:
        webpte.bundle(program, folder, name="Tiny SmolVLM", sequences=1)
    (folder / "shared.main.js").write_text(MAIN)
    return folder


@pytest.mark.slow  # tests/web/test_images.py asks the player itself in the gate
def test_dropped_image_has_the_answers_of_python_and_is_computed_once(browser, site, tmp_path):
    content: list[dict[str, Any]] = [{"type": "image", "image": png(1)}, {"type": "text", "text": "what?"}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    with LLM.load(example_models.vlm() / "vlm.pte") as llm:
        first = str(llm.generate(messages, max_new_tokens=6))
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "why?"}]
        second = str(llm.generate(messages, max_new_tokens=6))
    with opened_bundle(browser, site) as (page, _):
        is_ready(page)
        open_settings(page)
        page.fill("[name=max_tokens]", "6")
        give(page, "drop", "cat.png", png(1))
        expect(page.locator("#composer").get_by_role("img")).to_have_count(1)
        ask(page, "what?")
        assert said(page) == plain(first)
        ask(page, "why?")
        expect(page.locator("#log .assistant")).to_have_count(2, timeout=TIMEOUT)
        assert said(page) == plain(first + second)
        usages = page.evaluate("usages")
        computed = [each["prompt_tokens"] - each["prompt_tokens_details"]["cached_tokens"] for each in usages]
        assert computed[0] > 7 * tiny_vlm.ROWS
        # The last token of the first answer was not computed, nor what follows it.
        assert computed[1] == 1 + len("_\nUser:why?_\nAssistant:")
        page.screenshot(path=tmp_path / "page.png")
