"""axe-core finds nothing to object to on any page: wide and narrow, light and dark, with and without contents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .fake_pages import is_ready, open_settings, opened
from .test_form_page import ECHO
from .test_search_and_image_pages import FILES, INFO, image_file

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
WINDOWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
PIECES = json.dumps(["Some **bold** text and `code`:\n```python\nx = 1\n```\nThe end."])
SCORES = "() => [{ data: new Float32Array([0, 2, 1]), dims: [1, 3], dtype: 'f32' }]"


def violations(page: Page) -> list[str]:
    """Return what axe-core finds in a page, a line each."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    rules = page.evaluate("axe.run().then(({ violations }) => violations)")
    return [f"{rule['id']}: {node['html'][:120]}" for rule in rules for node in rule["nodes"]]


def talk(page: Page) -> None:
    page.fill("#message", "Say something")
    page.press("#message", "Enter")
    expect(page.locator("#log")).to_have_attribute("aria-busy", "false")
    open_settings(page)


def look(page: Page) -> None:
    page.set_input_files("#file", image_file())
    expect(page.locator("tbody tr")).to_have_count(3)


def compute(page: Page) -> None:
    page.click("#run")
    expect(page.locator("#outputs article")).to_have_count(1)


CASES = {
    "language": (f"{{ pieces: {PIECES} }}", talk),
    "encoder": ("{}", lambda page: expect(page.locator("#results li")).to_have_count(12)),
    "image": (f"{{ info: {INFO}, files: {FILES}, outputs: {SCORES} }}", look),
    "program": (ECHO, compute),
}


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
@pytest.mark.parametrize("kind", CASES)
def test_page_has_no_violations_of_accessibility_rules(browser, kind, width, scheme):
    fake, act = CASES[kind]
    viewport = {"width": width, "height": 760}
    with opened(browser, kind, fake, viewport=viewport, color_scheme=scheme) as page:
        is_ready(page)
        assert violations(page) == []
        act(page)
        assert violations(page) == []


@pytest.mark.parametrize("fake", ["{ about: { cached: 0 } }", "{ loadFailures: [['network', 'none']] }"])
def test_page_that_is_not_loaded_has_no_violations_of_accessibility_rules(browser, fake):
    with opened(browser, "language", fake) as page:
        expect(page.locator("#load button")).to_be_visible()
        assert violations(page) == []


def test_violations_of_accessibility_rules_are_reported(browser):
    with opened(browser, "language") as page:
        is_ready(page)
        page.evaluate("document.querySelector('#composer label').remove()")
        page.evaluate("document.querySelector('#log').append(document.createElement('button'))")
        assert [line.split(":")[0] for line in violations(page)] == ["button-name"]
