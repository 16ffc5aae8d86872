"""Texts of models, files and storage in the pages, in Chromium and under the pages' own policies: none becomes markup,
and no script runs."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect

import webpte
from tests.support.export.exporting import export
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.gate import slow_but
from tests.support.harness.graphs import GraphBuilder
from tests.support.harness.site_server import SiteServer, serving
from tests.support.harness.stand_in import StandIn
from tests.support.harness.writer import span_of
from tests.support.models.tokenizers import byte_level
from tests.unit.test_report import whole
from tests.web.fake_pages import FAKE
from tests.web.test_notebook import show
from webpte.debug.report import method_data, render_page
from webpte.graph import Constant, DType, Graph, String
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.running import Server, bind
from webpte.web_files import page_files

PAYLOADS = (
    "<script>hit('script')</script>",
    "<img src=x onerror=hit('img')>",
    "<svg onload=hit('svg')><animate onbegin=hit('animate')></svg>",
    "</script><script>hit('closed')</script>",
    "</pre></code><iframe srcdoc=\"<script>parent.hit('iframe')</script>\"></iframe>",
    "[link](javascript:hit('link')) <javascript:hit('auto')> ![image](javascript:hit('image'))",
    "<a href=\"javascript:hit('href')\">a</a>",
    "\" onmouseover=hit('double') autofocus onfocus=hit('focus') x=\"",
    "' onmouseover=hit('single') x='",
    "<details open ontoggle=hit('details')><summary>s</summary></details>",
    "<math><mtext><style><img src=x onerror=hit('math')></style></mtext></math>",
    "{{7*7}} ${hit('template')} <base href=//evil.invalid/>",
)
ALL = " ".join(PAYLOADS)
WATCH = """
globalThis.hits = [];
globalThis.hit = (name) => hits.push(name);
addEventListener("securitypolicyviolation", (event) => hits.push(`policy: ${event.violatedDirective}`), true);
"""
# Elements and attributes that run or load something, with those in shadow trees. Scripts of pages are files.
DANGEROUS = """() => {
  const found = [];
  const walk = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (["IMG", "IFRAME", "OBJECT", "EMBED", "BASE", "MATH", "ANIMATE"].includes(element.tagName.toUpperCase()))
        found.push(element.tagName);
      for (const { name, value } of element.attributes)
        if (/^on|^srcdoc$|^autofocus$/i.test(name)
            || (/href$|^src$|action$/i.test(name) && /javascript:|evil/.test(value)))
          found.push(`${element.tagName} ${name}=${value}`);
      if (element.shadowRoot) walk(element.shadowRoot);
    }
  };
  walk(document);
  return found;
}"""
INJECT = """() => {
  const script = document.createElement("script");
  script.textContent = "hit('control')";
  document.body.append(script);
}"""


@contextmanager
def watched(browser: Browser) -> Iterator[Page]:
    """A new page. Dialogs, scripts that ran, violations of a policy and dangerous elements are failures."""
    with browser.new_context() as window:
        page = window.new_page()
        page.set_default_timeout(TIMEOUT)
        errors: list[str] = []
        page.on("dialog", lambda dialog: errors.append(dialog.message))  # a dialog that stays would end in a timeout
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.add_init_script(WATCH)
        yield page
        assert page.evaluate(DANGEROUS) == []
        assert (page.evaluate("hits"), errors) == ([], [])


def check_policy(page: Page) -> None:
    """Check that the page's own policy refuses an inline script, and that `watched` would notice."""
    page.evaluate(INJECT)
    page.wait_for_function("hits.length > 0")
    assert all(name.startswith("policy: script-src") for name in page.evaluate("hits")), page.evaluate("hits")
    page.evaluate("hits.length = 0")
    page.evaluate("document.body.lastElementChild.remove()")


def ask(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")


def stored(path: str) -> str:
    """Return a script that stores conversations with hostile titles, as an earlier visit would have."""
    conversations = [
        {"id": str(number), "messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}]}
        for number, text in enumerate(PAYLOADS)
    ]
    return f"localStorage.setItem('webpte chats {path}', {json.dumps(json.dumps(conversations))})"


def check_conversations(page: Page) -> None:
    titles = page.locator("#list li > button:first-child").all_text_contents()
    assert titles == [text[:60] for text in PAYLOADS]
    expect(page.locator("#log .user")).to_contain_text(PAYLOADS[0])


def test_chat_page_of_a_bundle_shows_hostile_texts_as_text(browser: Browser) -> None:
    with TemporaryDirectory() as folder, serving({"site": Path(folder)}) as server:
        for name, data in (*page_files("language"), ("player/src/index.js", FAKE.read_bytes())):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        with watched(browser) as page:
            page.add_init_script(f"globalThis.fake = {{ pieces: {json.dumps([f'{text} ' for text in PAYLOADS])} }};")
            page.add_init_script(stored("/site/index.html"))
            page.goto(f"{server.origin}/site/index.html")
            page.wait_for_selector("#load", state="hidden")
            check_conversations(page)
            page.evaluate("text => { model.name = text; }", ALL)
            ask(page, ALL)
            expect(page.locator("#log .user").last).to_contain_text(ALL)
            for text in PAYLOADS:
                expect(page.locator("#log .assistant").last).to_contain_text(text)
            check_policy(page)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server whose model has a hostile name and writes hostile texts."""
    listening = bind(Config(port=0))
    backend = StandIn(tmp_path, byte_level(), ALL)
    (info,) = backend.models.values()
    backend.models = {ALL: replace(info, name=ALL, context=8192)}
    server = Server(uvicorn.Config(app(backend), log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    while thread.is_alive() and not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


def test_chat_page_of_a_server_shows_hostile_texts_as_text(browser: Browser, address: str) -> None:
    with watched(browser) as page:
        page.add_init_script(stored("/"))
        page.goto(address)
        page.wait_for_selector("#load", state="hidden")
        expect(page.locator("h1")).to_have_text(ALL)
        check_conversations(page)
        ask(page, ALL)
        for text in PAYLOADS:
            expect(page.locator("#log .assistant").last).to_contain_text(text)
        page.get_by_text("Use it from programs").click()
        expect(page.locator("details pre").first).to_contain_text("hit(")
        check_policy(page)


def hostile_graph(text: str) -> Graph:
    """An op, a constant and a string with a hostile name."""
    b = GraphBuilder()
    x, y = b.tensor(3, 5), b.tensor(3, 5)
    weight = b.tensor(3, 5, constant=Constant(span_of(np.zeros(15, np.float32)), DType.FLOAT32, text))
    b.call(text, (x, weight, b.add(String(text))), y)
    return b.graph([x], [y])


@pytest.mark.parametrize("text", slow_but(PAYLOADS[:3], PAYLOADS))
def test_report_shows_hostile_names_as_text(browser: Browser, tmp_path: Path, text: str) -> None:
    data = whole(method_data(hostile_graph(text), None, f"{text} has no kernel"), method=text)
    data["file"] = text
    path = tmp_path / "report.html"
    path.write_text(render_page(data), encoding="utf-8")
    with watched(browser) as page:
        page.goto(path.as_uri())
        page.click("#c0 .op")
        for tab in ("graph", "memory", "constants", "transfers"):
            page.click(f"[data-tab={tab}]")
        page.fill("#search", text[:30])
        assert page.locator("#c0 .op").get_attribute("title") == text
        assert text in page.locator("body").inner_text()
        check_policy(page)


def test_notebook_widget_shows_hostile_names_as_text(page: Page, server: SiteServer, tmp_path: Path) -> None:
    exported = export("two_methods")
    shutil.copy(exported.path, tmp_path / "model.pte")
    with webpte.load(tmp_path / "model.pte", data=exported.data) as program:
        site = webpte.bundle(program, tmp_path / "site", name=ALL)
    page.evaluate(WATCH)
    show(page, server, site)
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#outputs h2")).to_be_visible(timeout=TIMEOUT)
    assert page.evaluate(DANGEROUS) == [] and page.evaluate("hits") == []
    assert ALL in page.locator("main").inner_text()
