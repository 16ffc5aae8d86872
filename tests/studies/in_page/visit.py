"""A visitor: a browser with its own profile, a page of a bundle, and what is done in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.harness.site_server import SiteServer

MINUTES = 60_000.0  # in milliseconds
LOAD = """async (worker) => {
  const { load } = await import("/site/player/src/index.js");
  globalThis.stages = [];
  globalThis.stop = new AbortController();
  const onProgress = (told) => {
    globalThis.progress = told;
    if (!globalThis.stages.includes(told.stage)) globalThis.stages.push(told.stage);
  };
  globalThis.model = await load("/site/", { onProgress, signal: globalThis.stop.signal, worker });
  return globalThis.model.adapter;
}"""
ANSWER = """async (request) => {
  const answer = await globalThis.model.chat.completions.create({ ...request, return_token_ids: true });
  return answer.choices[0].token_ids;
}"""
TOGETHER = """async (requests) => {
  const began = performance.now();
  const ask = (request) => globalThis.model.chat.completions.create({ ...request, return_token_ids: true });
  const answers = await Promise.all(requests.map(ask));
  return [answers.map((answer) => answer.choices[0].token_ids), (performance.now() - began) / 1000];
}"""


@contextmanager
def visiting(browser: Browser, server: SiteServer, minutes: float = 10) -> Iterator[Page]:
    """Yield a page of the server in a profile of its own."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(minutes * MINUTES)
        page.goto(f"{server.origin}/blank.html")
        yield page
    finally:
        context.close()


def load(page: Page, worker: bool = True) -> float:
    """Seconds until the model is ready."""
    began = time.perf_counter()
    page.evaluate(LOAD, worker)
    return time.perf_counter() - began


def answer(page: Page, request: dict[str, Any]) -> list[int]:
    tokens: list[int] = page.evaluate(ANSWER, request)
    return tokens


def together(page: Page, requests: Sequence[dict[str, Any]]) -> tuple[list[list[int]], float]:
    """Tokens of each, and seconds for all."""
    tokens, seconds = page.evaluate(TOGETHER, list(requests))
    return tokens, seconds


def weight_bytes(server: SiteServer) -> int:
    return sum(request.sent for request in server.asked(".bin"))


def shards(site: Path) -> list[Path]:
    return sorted((site / "files").glob("*.bin"))
