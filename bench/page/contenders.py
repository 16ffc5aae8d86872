"""Who takes part: pages in a Chromium each, and webpte in a process; all of them on SwiftShader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, Playwright

from tests.support.harness.browser import ARGUMENTS, WEBGPU, chromium_path
from tests.support.harness.configurations import CONFIGURATIONS
from tests.support.harness.site_server import serving

from ..setup import npm_folder
from ..workers import REPOSITORY
from .names import AS_GPU, ORT, UNCHECKED
from .scripts import Script

# Reads and writes are kept inside their buffers by Dawn, unless it is asked not to.
FLAGS = {UNCHECKED: ("--enable-dawn-features=disable_robustness",)}
# A page is given kernels for software where its adapter is named so.
NAMELESS = """Object.defineProperty(GPUAdapter.prototype, "info", {
  get: () => ({ vendor: "", architecture: "", device: "", description: "", subgroupMinSize: 4 }),
});"""
OPEN = "async ([module, ...more]) => { globalThis.contender = await import(module); return contender.open(...more); }"
MINUTES = 15


@dataclass(frozen=True)
class Answer:
    """Of one call after the other: milliseconds and tokens; of the first, the output that is compared."""

    times: list[float]
    tokens: list[int]
    output: list[float] | None
    cpu: float  # milliseconds of all its processes, for a call on average


class Contender(Protocol):
    about: dict[str, Any]

    def run(self, count: int, compare: bool) -> Answer: ...


class Seat:
    """A contender whose processes are those under `pid`."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)

    def begin(self) -> None:
        """Do what comes before the calls that count."""
        raise NotImplementedError

    def ask(self, count: int, compare: bool) -> dict[str, Any]:
        raise NotImplementedError

    def run(self, count: int, compare: bool) -> Answer:
        self.begin()
        before = self._cpu()
        result = self.ask(count, compare)
        return Answer(result["times"], result["tokens"], result["output"], 1e3 * (self._cpu() - before) / (count + 1))

    def _cpu(self) -> float:
        used = 0.0
        for process in (self._root, *self._root.children(recursive=True)):
            times = process.cpu_times()
            used += times.user + times.system
        return used


class PageSeat(Seat):
    def __init__(self, browser: Browser, page: Page, opening: list[Any]) -> None:
        super().__init__(browser_pid(browser))
        self._page = page
        self.about: dict[str, Any] = page.evaluate(OPEN, opening)

    def begin(self) -> None:
        self._page.evaluate("contender.begin()")

    def ask(self, count: int, compare: bool) -> dict[str, Any]:
        results: dict[str, Any] = self._page.evaluate("([...given]) => contender.run(...given)", [count, compare])
        return results


def browser_pid(browser: Browser) -> int:
    session = browser.new_browser_cdp_session()
    result = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return next(int(each["id"]) for each in result if each["type"] == "browser")


@contextmanager
def page(playwright: Playwright, name: str, folder: Path, script: Script | None) -> Iterator[PageSeat]:
    """Yield a page of its own browser, with `folder` served to it."""
    folders = {"bench": Path(__file__).parent, "model": folder, "npm": npm_folder() / "node_modules"}
    with serving(folders) as server:
        flags = [*ARGUMENTS, *WEBGPU, *FLAGS.get(name, ())]
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=flags)
        try:
            opened = browser.new_page()
            if name == AS_GPU:
                opened.add_init_script(NAMELESS)
            opened.set_default_timeout(MINUTES * 60_000)
            opened.goto(f"{server.origin}/blank.html")
            module = "/bench/ort.js" if name == ORT else "/bench/webpte.js"
            yield PageSeat(browser, opened, [module, "/model", *([] if script is None else [script.json()])])
        finally:
            browser.close()


class NativeSeat(Seat):
    def __init__(self, process: subprocess.Popen[str], folder: Path, script: Script) -> None:
        super().__init__(process.pid)
        self._process = process
        self.about = self._ask({"folder": str(folder), "script": script.json()})

    def begin(self) -> None:
        self._ask({"do": "begin"})

    def ask(self, count: int, compare: bool) -> dict[str, Any]:
        return self._ask({"do": "run", "count": count, "compare": compare})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the native process ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def native(folder: Path, script: Script) -> Iterator[NativeSeat]:
    environment = {**os.environ, **CONFIGURATIONS["swiftshader"].environment}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.page.native"],
        cwd=REPOSITORY, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield NativeSeat(process, folder, script)
        finally:
            process.kill()
