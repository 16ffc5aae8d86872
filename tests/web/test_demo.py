"""The documentation has a live model in it: built with the site, small, and right about what it knows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from webpte.bundles.summary import summary

from .conftest import WEB

LOAD = 120_000  # milliseconds, for a download, some kernels and an answer
DOCS = WEB.parent / "docs"
QUESTION, ANSWER = json.loads((DOCS / "demo" / "answers.json").read_text(encoding="utf-8"))[6]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as it is published; only the page that links to the model."""
    out = tmp_path_factory.mktemp("documentation")
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", out / "trees"]
    subprocess.run([*sphinx, DOCS, out, DOCS / "bundles.md"], check=True, timeout=120)
    return out


def test_the_documentation_links_to_a_model_below_a_megabyte(site):
    assert 'href="demo/index.html"' in (site / "bundles.html").read_text(encoding="utf-8")
    found = summary(site / "demo")
    assert found["kind"] == "language"
    assert sum(found["visit"].values()) < 1_000_000


def test_the_model_answers_in_the_page_of_the_documentation(site, server, page):
    server.folders["docs"] = site
    server.headers["Content-Security-Policy"] = "default-src 'self'"
    page.goto(f"{server.origin}/docs/demo/index.html")
    expect(page.locator("#send")).to_be_enabled(timeout=LOAD)
    page.click("details summary")
    page.fill("[name=temperature]", "0")
    page.fill("#message", QUESTION)
    page.press("#message", "Enter")
    expect(page.locator("#log")).to_contain_text(ANSWER, timeout=LOAD)
