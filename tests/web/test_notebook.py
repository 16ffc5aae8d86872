"""A bundle's page inside a notebook: the kernel's half with a fake anywidget, the page's half in Chromium."""

from __future__ import annotations

import base64
import gc
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import webpte
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.errors import raises
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.notebook import FRONT, MAX_REPLY_BYTES, BundleFiles

pytestmark = pytest.mark.timeout(1200)  # with a cold cache a test exports what it runs


class FakeWidget:
    """What is used of anywidget's: the values that both halves see, and messages."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []

    def on_msg(self, take: Any) -> None:
        self.take = take

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append((content, buffers))


@pytest.fixture
def anywidget(monkeypatch):
    trait = types.SimpleNamespace(tag=lambda **_: None)
    traits = types.SimpleNamespace(Unicode=lambda *_: trait, List=lambda *_: trait)
    monkeypatch.setitem(sys.modules, "anywidget", types.SimpleNamespace(AnyWidget=FakeWidget))
    monkeypatch.setitem(sys.modules, "traitlets", traits)


def test_widget_without_anywidget_names_package(bundled, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    exported, site = bundled("two_methods")
    with raises(webpte.Error, "anywidget", "pip install 'webpte[notebook]'"):
        webpte.widget(site)
    with (
        webpte.load(exported.path, data=exported.data) as program,
        raises(webpte.Error, "anywidget", "pip install 'webpte[notebook]'"),
    ):
        program.show()


def test_show_program_bundle_lives_as_long_as_widget(bundled, anywidget):
    exported, site = bundled("two_methods")
    with webpte.load(exported.path, data=exported.data) as program:
        shown = program.show(name="Mine")
    folder = shown._files.site
    assert shown.values["kind"] == "program" and "index.html" in shown.values["page"]
    shown.take(shown, {"number": 7, "path": "manifest.json", "begin": 0, "end": MAX_REPLY_BYTES}, [])
    [(content, [data])] = shown.sent
    assert content == {"number": 7, "size": len(data)} and b'"name":"Mine"' in data
    del shown
    gc.collect()
    assert not folder.exists()
    assert webpte.widget(site)._files.site == site
    with raises(webpte.InputError, site, "name", code="not_applicable"):
        webpte.widget(site, name="Other")


def test_bundle_files_refuse_other_paths(bundled):
    shelf = BundleFiles(bundled("two_methods")[1])
    path = next(path for path in shelf._files if path.startswith("files/"))
    whole = (shelf.site / path).read_bytes()
    assert shelf.answer({"number": 1, "path": path, "begin": 2, "end": 6}) == (
        {"number": 1, "size": len(whole)},
        [whole[2:6]],
    )
    (shelf.site / "secret.txt").write_text("x")
    for wrong in ("secret.txt", "../two_methods.pte", "/etc/passwd", "files/../secret.txt", 5, None):
        content, buffers = shelf.answer({"number": 1, "path": wrong, "begin": 0, "end": 1})
        assert "error" in content and buffers == []
    for span in ((-1, 0), (0, MAX_REPLY_BYTES + 1), (5, 4), ("a", 1)):
        content, buffers = shelf.answer({"number": 1, "path": path, "begin": span[0], "end": span[1]})
        assert "error" in content and buffers == []
    assert "error" in shelf.answer("nonsense")[0]


SHOW = """async () => {
  const { default: front } = await import("/front/front.js");
  const listeners = new Set();
  const values = await kernel({ values: true });
  const model = {
    get: (name) => values[name],
    on: (_, listener) => listeners.add(listener),
    off: (_, listener) => listeners.delete(listener),
    send: async (content) => {
      const { answer, data } = await kernel(content);
      if (!answer) return;
      const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
      for (const listener of listeners) listener(answer, [new DataView(bytes.buffer)]);
    },
  };
  const el = document.body.appendChild(document.createElement("div"));
  globalThis.close = await front.render({ model, el });
  globalThis.listeners = listeners;
}"""


def show(page, server, site: Path, drop: int | None = None) -> list[str]:
    """Render the front half in a page, with a kernel that drops a message, if asked to. What was asked for."""
    shelf = BundleFiles(site)
    asked: list[str] = []

    def kernel(content: dict[str, Any]) -> dict[str, Any]:
        if "values" in content:
            return {"kind": shelf.kind, "digest": shelf.digest, "page": shelf.page}
        asked.append(content["path"])
        if len(asked) == drop:
            return {}
        answer, buffers = shelf.answer(content)
        return {"answer": answer, "data": base64.b64encode(b"".join(buffers)).decode()}

    page.expose_function("kernel", kernel)
    server.folders["front"] = FRONT.parent
    page.evaluate(SHOW)
    return asked


@pytest.mark.slow
def test_notebook_program_dropped_message_still_runs(bundled, server, page):
    exported, site = bundled("two_methods")
    asked = show(page, server, site, drop=3)
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#outputs h2")).to_be_visible(timeout=TIMEOUT)
    page.select_option("fieldset select", "ones")
    page.click("#run")
    expect(page.locator("#outputs dl")).to_be_visible()
    with webpte.load(exported.path, data=exported.data) as program:
        method = program.method("forward")
        expected = float(np.mean(np.asarray(method(np.ones(method.inputs[0].bound, "f4")))))
    expect(page.locator("#outputs dd").nth(1)).to_have_text(f"{expected:.4g}")
    assert any(path.endswith(".bin") for path in asked)
    assert not any(request.path.startswith("/site") for request in server.requests)
    page.evaluate("close()")
    assert page.evaluate("listeners.size") == 0


@pytest.mark.slow  # tests/web/test_pages_play.py talks to the same page outside
def test_notebook_language_model_generates(tmp_path, server, page):
    folder = write_tiny_llm(tmp_path)
    with webpte.load(folder / "tiny.pte") as program:
        site = webpte.bundle(program, folder / "site", sequences=1)
    show(page, server, site)
    expect(page.locator("#load")).to_be_hidden(timeout=TIMEOUT)
    page.fill("#message", "hi")
    page.press("#message", "Enter")
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false", timeout=TIMEOUT)
    expect(page.locator("#speed")).to_contain_text("tokens/s")
