"""The server's page, in Chromium, with a server whose backend has no model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect

from tests.support.harness.browser import TIMEOUT
from tests.support.harness.stand_in import StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.running import Server, bind

QUESTION = "What is the capital of France?"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    listening = bind(Config(port=0))
    application = app(StandIn(tmp_path, byte_level(), "Paris."), Config(api_keys=("secret",)))
    server = Server(uvicorn.Config(application, log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    while thread.is_alive() and not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


def ask(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")
    expect(page.locator("#log .assistant").last).to_contain_text("Paris.")
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")


def test_server_page_asks_for_the_key_answers_and_remembers(browser: Browser, address: str) -> None:
    with browser.new_context() as window:
        page = window.new_page()
        page.set_default_timeout(TIMEOUT)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept("secret"))
        page.goto(address)
        page.wait_for_selector("#load", state="hidden")
        expect(page.locator("h1")).to_have_text("stand-in")
        expect(page.locator("#hint")).to_contain_text("this server")
        ask(page, QUESTION)
        page.get_by_text("Use it from programs").click()
        expect(page.locator("details pre")).to_contain_text(f"curl {address}v1/chat/completions")
        page.reload()
        page.wait_for_selector("#load", state="hidden")
        expect(page.locator("#log .user")).to_contain_text(QUESTION)
        ask(page, "And of Italy?")
        expect(page.locator("#log article")).to_have_count(4)
        assert errors == []
