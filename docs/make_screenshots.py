"""Make the screenshots of docs/debugging.md: python -m docs.make_screenshots

Needs Chromium, and the exports of the tests: MiniLM takes a minute to export, SmolLM2 ten, unless they are cached.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page

from tests.support.export.exporting import export
from tests.support.harness.browser import TIMEOUT, chromium
from tests.support.models.smollm import smollm2
from webpte.debug.report import render_page, report_data

IMAGES = Path(__file__).parent / "images"
MAX_BYTES = 400_000


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = opened(browser, Path(folder), export("minilm").path, "all-MiniLM-L6-v2.pte")
        page.click("[data-tab=memory]")
        page.locator(".track .activation").nth(40).hover()
        shoot(page, "report-minilm-memory.png")
        page.keyboard.press("1")
        select(page, "linear").evaluate("row => row.scrollIntoView({ block: 'center' })")
        shoot(page, "report-minilm.png")
        page = opened(browser, Path(folder), smollm2("4w").path, "SmolLM2-135M.pte")
        page.click(".block summary >> nth=0", position={"x": 60, "y": 12})  # fold the layer that starts unfolded
        select(page, "embedding")
        shoot(page, "report-smollm2.png")
    return 0


def opened(browser: Browser, folder: Path, program: Path, name: str) -> Page:
    """The report of a program, under a name that says more than that of a cached export."""
    named = folder / name
    shutil.copyfile(program, named)
    target = folder / "report.html"
    target.write_text(render_page(report_data(named)), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=1.25)
    page.set_default_timeout(TIMEOUT)
    page.goto(target.as_uri())
    return page


def select(page: Page, op: str) -> Locator:
    """Select the first call of an op."""
    row = page.locator(f".call:has(.op[title*='{op}'])").first
    row.locator(".op").click()
    return row


def shoot(page: Page, name: str) -> None:
    target = IMAGES / name
    page.screenshot(path=target)
    size = target.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{target} has {size} bytes; the repository takes {MAX_BYTES}")
    print(f"{target.name}: {size} bytes")


if __name__ == "__main__":
    sys.exit(main())
