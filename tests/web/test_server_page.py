"""The server's page, in Chromium, with a server whose backend has no model."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, Route, expect

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


def as_before_loading(route: Route) -> None:
    """Leave out what the server knows of a model only after it has loaded it."""
    response = route.fetch()
    if response.status == 200:
        content = response.json()
        for model in content["data"]:
            del model["context"]
        route.fulfill(response=response, json=content)
    else:
        route.fulfill(response=response)


def test_server_page_asks_for_the_key_answers_and_remembers(browser: Browser, address: str) -> None:
    with browser.new_context() as window:
        page = window.new_page()
        page.set_default_timeout(TIMEOUT)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept("secret"))
        page.route("**/v1/models", as_before_loading)
        page.goto(address)
        page.wait_for_selector("#load", state="hidden")
        expect(page.locator("h1")).to_have_text("stand-in")
        expect(page.locator("#hint")).to_contain_text("this server")
        expect(page.locator("body")).not_to_contain_text("context left")
        page.unroute("**/v1/models")
        ask(page, QUESTION)
        expect(page.locator("body")).to_contain_text(re.compile(r"\d+ of \d+ tokens of context left"))
        page.get_by_text("Use it from programs").click()
        expect(page.locator("details pre")).to_contain_text(f"curl {address}v1/chat/completions")
        page.reload()
        page.wait_for_selector("#load", state="hidden")
        expect(page.locator("#log .user")).to_contain_text(QUESTION)
        ask(page, "And of Italy?")
        expect(page.locator("#log article")).to_have_count(4)
        assert errors == []
