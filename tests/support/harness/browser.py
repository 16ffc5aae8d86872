"""A real Chromium for pages that people open, driven by Playwright. Always closed, whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

# No sandbox, as containers and root have none; no talking to anyone.
ARGUMENTS = (
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu-rasterization",
    "--disable-gpu-compositing",
)
# WebGPU on SwiftShader, which Chromium carries: the same on every machine.
WEBGPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
TIMEOUT = 120_000  # milliseconds, for each thing one waits for
expect.set_options(timeout=TIMEOUT)  # it would wait for five seconds


def chromium_path() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def chromium(*more: str) -> Iterator[Browser]:
    """Yield the browser, with `more` arguments."""
    path = chromium_path()
    if path is None:
        raise FileNotFoundError("there is no chromium; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *more], timeout=TIMEOUT)
        try:
            yield browser
        finally:
            browser.close()
