"""Pages with the real player, on SwiftShader and under the strictest policy, show webpte's results."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

import webpte
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.site_server import SiteServer, serving
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.bundles import bundle_checks
from webpte.llm import LLM

from .fake_pages import POLICY, WATCH, is_ready, open_settings

MAX_PAGE_BYTES = 80_000  # bytes of page, player, tokenizer, template engine and manifest that a visitor loads to chat
pytestmark = pytest.mark.timeout(1200)  # with a cold cache a test exports what it runs


@contextmanager
def opened(browser: Browser, site: Path) -> Iterator[tuple[Page, SiteServer]]:
    with serving({"site": site}, POLICY) as server, browser.new_context() as window:
        page = window.new_page()
        page.set_default_timeout(TIMEOUT)
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.add_init_script(WATCH)
        page.goto(f"{server.origin}/site/index.html")
        yield page, server
        assert page.evaluate("violations") == []
        assert logged == []


@pytest.fixture(scope="module")
def talker(tmp_path_factory) -> tuple[Path, Path]:
    folder = write_tiny_llm(tmp_path_factory.mktemp("talker"))
    with webpte.load(folder / "tiny.pte") as program:
        return folder / "tiny.pte", webpte.bundle(program, folder / "site", name="Tiny Llama")


def said(page: Page) -> str:
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false", timeout=TIMEOUT)
    pieces = page.locator("#log .assistant > .text").all_text_contents()
    return plain("".join(pieces))


def plain(text: str) -> str:
    """Without what the page makes of Markdown, and of space at the ends of paragraphs."""
    return re.sub(r"[\s`*]", "", text)


def packed(server: SiteServer) -> int:
    """Bytes of the page and the player that were asked for, as a server packs them."""
    paths = {request.path for request in server.requests if "/files/" not in request.path}
    return sum(len(gzip.compress(server.body(path) or b"", 9, mtime=0)) for path in paths)


def ask(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


@pytest.mark.slow
def test_chat_page_same_text_and_second_visit_cached(browser, talker):
    program, site = talker
    with LLM.load(program) as llm:
        expected = str(llm.generate("hi", max_new_tokens=12))
    with opened(browser, site) as (page, server):
        is_ready(page)
        open_settings(page)
        expect(page.locator("[name=temperature]")).to_have_attribute("placeholder", "0")
        page.fill("[name=max_tokens]", "12")
        ask(page, "hi")
        assert said(page) == plain(expected)
        expect(page.locator("#adapter")).to_contain_text("swiftshader")
        expect(page.locator("#context")).to_contain_text("of 64 tokens of context left")
        assert packed(server) <= MAX_PAGE_BYTES
        weights = len(server.asked(".bin"))
        page.reload()
        is_ready(page)
        assert len(server.asked(".bin")) == weights  # the second visit has them


@pytest.mark.slow  # tests/web/test_chat.py asks the player itself in the gate
def test_chat_page_prompt_exceeds_context_is_refused(browser, talker):
    with opened(browser, talker[1]) as (page, _):
        is_ready(page)
        ask(page, "long " * 30)
        expect(page.get_by_role("alert")).to_contain_text("64")


def test_form_page_outputs_equal_program(browser, bundled: Callable[..., tuple]):
    exported, site = bundled("two_methods")
    with webpte.load(exported.path, data=exported.data) as program:
        method = program.method("forward")
        array = np.random.default_rng(1).standard_normal(method.inputs[0].bound).astype("f4")
        expected = np.asarray(method(array))
    file = io.BytesIO()
    np.save(file, array)
    with opened(browser, site) as (page, _):
        is_ready(page)
        page.select_option("fieldset select", "file")
        page.set_input_files(
            "#inputs input[type=file]",
            {"name": "x.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()},
        )
        page.click("#run")
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as .npy").first.click()
        np.testing.assert_allclose(np.load(download.value.path()), expected, rtol=1e-4, atol=1e-4)


def test_image_page_shows_output_maps(browser, bundled: Callable[..., tuple]):
    _, site = bundled("mtcnn_pnet")
    file = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 30, 30)).save(file, "PNG")
    with opened(browser, site) as (page, _):
        page.set_input_files("#file", {"name": "x.png", "mimeType": "image/png", "buffer": file.getvalue()})
        is_ready(page)
        expect(page.locator("#outputs figcaption").first).to_contain_text("plane 0", timeout=TIMEOUT)
        assert page.locator("#outputs article").count() == 2


def plant_wrong_kernels(site: Path, op: str) -> set[str]:
    """Let the kernels of a check subtract where they added, in a bundle that is whole otherwise. Their labels."""
    manifest = json.loads((site / "manifest.json").read_text())
    files = manifest["files"]
    labels = set()
    for variant in manifest["methods"][next(c["method"] for c in manifest["check"] if c["op"] == op)]["variants"]:
        text = (site / files[variant["wgsl"]]["path"]).read_bytes().replace(b" + ", b" - ")
        variant["wgsl"] = digest = hashlib.sha256(text).hexdigest()
        files[digest] = {"bytes": len(text), "type": "wgsl", "path": f"files/{digest}.wgsl"}
        (site / files[digest]["path"]).write_bytes(text)
        labels |= {
            kernel["label"] for kernel in json.loads((site / files[variant["plan"]]["path"]).read_text())["kernels"]
        }
    del manifest["sha256"]
    rest = json.dumps(manifest, separators=(",", ":"))[1:].encode()
    (site / "manifest.json").write_bytes(b'{"sha256":"%s",' % hashlib.sha256(rest).hexdigest().encode() + rest)
    return labels


def test_checks_pass_and_a_wrong_kernel_is_named(browser, tmp_path):
    site = bundle_checks(tmp_path / "site")
    with opened(browser, site) as (page, _):
        expect(page.locator("#verdict")).to_have_text("All 3 programs passed", timeout=TIMEOUT)
    labels = plant_wrong_kernels(site, "float16 addition")
    with opened(browser, site) as (page, _):
        expect(page.locator("#verdict")).to_have_text("1 of 3 programs failed", timeout=TIMEOUT)
        expect(page.locator("#rows .failed")).to_contain_text("float16 addition")
        named = page.locator("#suspects").text_content() or ""
        assert any(label in named for label in labels), (named, labels)
