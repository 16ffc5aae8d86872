"""The documentation has a live model in it: small, and right about what it knows.

tests/project/test_docs.py builds the whole site; here the extension of Sphinx bundles the model alone.
"""

from __future__ import annotations

import json
import runpy
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from webpte.bundles.site import summary

from .conftest import WEB

LOAD = 120_000  # milliseconds, for a download, some kernels and an answer
DOCS = WEB.parent / "docs"
QUESTION, ANSWER = json.loads((DOCS / "demo" / "answers.json").read_text(encoding="utf-8"))[6]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return what the extension adds to the documentation when it was built."""
    out = tmp_path_factory.mktemp("documentation")
    extension = runpy.run_path(str(DOCS / "_extensions" / "demo.py"))
    app = SimpleNamespace(srcdir=DOCS, outdir=out, builder=SimpleNamespace(format="html"))
    extension["_bundle"](app, None)
    return out


def test_demo_model_is_smaller_than_a_megabyte(site):
    report = summary(site / "demo")
    assert report["kind"] == "language"
    visit = report["visit"]
    assert visit["page_gzip"] + visit["plan_gzip"] + visit["weights"] < 1_000_000


@pytest.mark.slow  # tests/web/test_pages_play.py has the same page with another model
def test_demo_model_responds_in_documentation_page(site, server, page):
    server.folders["docs"] = site
    server.headers["Content-Security-Policy"] = "default-src 'self'"
    page.goto(f"{server.origin}/docs/demo/index.html")
    expect(page.locator("#load")).to_be_hidden(timeout=LOAD)
    page.click("details summary")
    page.fill("[name=temperature]", "0")
    page.fill("#message", QUESTION)
    page.press("#message", "Enter")
    expect(page.locator("#log")).to_contain_text(ANSWER, timeout=LOAD)
