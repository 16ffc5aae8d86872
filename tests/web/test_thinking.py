"""The thought of a model in both chat pages, in Chromium: folded, dim, and apart from the answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import webpte
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.serving import Running
from tests.support.harness.site_server import serving
from tests.support.models.thinker import OPEN_TEMPLATE, REASONING, TEMPLATE, TEXT, write_thinker

from .fake_pages import open_settings

SCREENSHOTS = os.environ.get("WEBPTE_TEST_SCREENSHOTS")  # a folder, to look at the pages
SCHEMA = '{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false}'


def ask(page: Page, text: str, answer: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")
    expect(page.locator("#log .assistant").last.locator(":scope > .text")).to_have_text(answer)
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")


def check_page(page: Page, url: str, name: str) -> None:
    errors: list[str] = []
    page.set_default_timeout(TIMEOUT)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#load", state="hidden")
    ask(page, "Hi", TEXT)
    expect(page.locator("#context")).to_contain_text("of 512 tokens")
    thought = page.locator("#log .assistant .thought")
    expect(thought.locator("summary")).to_have_text("Thought")
    expect(thought.locator(".text")).to_be_hidden()
    thought.locator("summary").click()
    expect(thought.locator(".text")).to_have_text(REASONING)
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")
    page.reload()
    page.wait_for_selector("#load", state="hidden")
    expect(page.locator("#log .thought .text")).to_have_text(REASONING)
    open_settings(page)
    page.fill("#schema", SCHEMA)
    ask(page, "As JSON", '{"a": 1}')
    expect(page.locator("#log .thought")).to_have_count(2)
    page.fill("#schema", "")
    page.select_option("#thinking", "off")
    ask(page, "Quickly", TEXT)
    expect(page.locator("#log .thought")).to_have_count(2)
    assert errors == []


@pytest.mark.slow  # the gate has the page of the server, and the player in web/test/thinking.test.js
@pytest.mark.parametrize("template", [TEMPLATE, OPEN_TEMPLATE])
def test_bundle_page_folds_the_thought(browser: Browser, tmp_path: Path, template: str) -> None:
    with webpte.load(write_thinker(tmp_path, template=template)) as loaded:
        webpte.bundle(loaded, tmp_path / "site")
    with serving({"site": tmp_path / "site"}) as server, browser.new_context() as window:
        check_page(window.new_page(), f"{server.origin}/site/index.html", "bundle-page")


def test_server_page_folds_the_thought(browser: Browser, tmp_path: Path) -> None:
    with Running(write_thinker(tmp_path)) as server, browser.new_context() as window:
        check_page(window.new_page(), server.url, "server-page")
