"""Pages in Chromium with a fake player; log messages and violations of the policy are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.harness.browser import TIMEOUT
from tests.support.harness.site_server import serving
from webpte.web_files import page_files

FAKE = Path(__file__).with_name("fake_player.js")
POLICY = {"Content-Security-Policy": "default-src 'self'"}  # the strictest that pages promise to work under
WATCH = """
globalThis.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push([event.violatedDirective, event.blockedURI]));
"""


@contextmanager
def fake_site(kind: str) -> Iterator[str]:
    """The address of a page as its bundle has it, but with a player that plays nothing."""
    with TemporaryDirectory() as folder, serving({"site": Path(folder)}, POLICY) as server:
        for name, data in (*page_files(kind), ("player/src/index.js", FAKE.read_bytes())):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        yield f"{server.origin}/site/index.html"


@contextmanager
def opened(browser: Browser, kind: str, fake: str = "{}", **context: Any) -> Iterator[Page]:
    """A page of this kind whose player does what `fake`, an object in JavaScript, says. Nothing may be logged."""
    with fake_site(kind) as url, browser.new_context(**context) as window:
        page = window.new_page()
        page.set_default_timeout(TIMEOUT)
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.add_init_script(f"{WATCH}; globalThis.fake = {fake};")
        page.goto(url)
        yield page
        assert page.evaluate("violations") == []
        assert logged == []


def is_ready(page: Page) -> Page:
    page.wait_for_selector("#load", state="hidden")
    return page


def open_settings(page: Page) -> None:
    """Open the settings of a chat page, which a wide window shows beside the conversation."""
    if not page.locator("#options").evaluate("details => details.open"):
        page.locator("#options > summary").click()
