"""What a bundle of a language model promises in a page, each as a question with an answer in words."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.harness.site_server import Fault, SiteServer

from .requests import greedy, seeded
from .visit import answer, load, shards, together, visiting, weight_bytes

# Every device that a page asks for, in reach of the page. Only without a worker, which has devices of its own.
WATCH_DEVICES = """() => {
  const request = GPUAdapter.prototype.requestDevice;
  globalThis.devices = [];
  GPUAdapter.prototype.requestDevice = async function (...given) {
    const device = await request.apply(this, given);
    globalThis.devices.push(device);
    return device;
  };
}"""
BEGIN = """async () => {
  const { load } = await import("/site/player/src/index.js");
  globalThis.progress = { stage: "", done: 0 };
  globalThis.stop = new AbortController();
  globalThis.ended = null;
  const given = { onProgress: (p) => (globalThis.progress = p), signal: globalThis.stop.signal, worker: false };
  load("/site/", given).then(
    (model) => ((globalThis.model = model), (globalThis.ended = "ready")),
    (error) => (globalThis.ended = `${error.code ?? error.name}: ${error.message}`),
  );
}"""
ASK = """(request) => {
  globalThis.pieces = 0;
  globalThis.ended = null;
  globalThis.stop = new AbortController();
  (async () => {
    const given = { ...request, stream: true, return_token_ids: true, signal: globalThis.stop.signal };
    const tokens = [];
    for await (const chunk of await globalThis.model.chat.completions.create(given)) {
      globalThis.pieces += 1;
      tokens.push(...(chunk.choices[0]?.token_ids ?? []));
    }
    return tokens;
  })().then((tokens) => (globalThis.ended = tokens), (error) => (globalThis.ended = `${error.code}: ${error.message}`));
}"""
EMPTY_STORE = """async () => {
  const root = await navigator.storage.getDirectory();
  for await (const name of root.keys()) await root.removeEntry(name, { recursive: true });
}"""
STOP = """async () => {
  const began = performance.now();
  globalThis.stop.abort();
  while (globalThis.ended === null) await new Promise((next) => setTimeout(next, 1));
  return [performance.now() - began, String(globalThis.ended)];
}"""


@dataclass
class Proof:
    """A bundle, who serves it, and the browser that visits."""

    model: Path
    site: Path
    server: SiteServer
    browser: Browser
    tokens: int

    def native(self, requests: list[dict[str, Any]], model: Path | None = None) -> list[list[int]]:
        """Return the tokens of the native player on the browser's own driver."""
        command = [sys.executable, "-m", "tests.studies.in_page.native", str(model or self.model)]
        child = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True, check=True)
        results: list[list[int]] = json.loads(child.stdout.splitlines()[-1])
        return results

    def visit(self) -> Any:
        self.server.requests.clear()
        self.server.fault = lambda path: None
        return visiting(self.browser, self.server)


def equal(proof: Proof) -> tuple[bool, str]:
    """Tokens of the page are those of the program, and of the same bundle natively."""
    requests = [*greedy(proof.tokens), *seeded(proof.tokens)]
    with proof.visit() as page:
        load(page)
        in_page = [answer(page, request) for request in requests]
    program, bundle = proof.native(requests), proof.native(requests, proof.site)
    same = [p == n == b for p, n, b in zip(in_page, program, bundle, strict=True)]
    return all(
        same
    ), f"{sum(same)} of {len(same)} answers of up to {proof.tokens} tokens are those of both native players"


def visits(proof: Proof) -> tuple[bool, str]:
    """Return a second visit loads no weights."""
    with proof.visit() as page:
        first = load(page)
        sent = weight_bytes(proof.server)
        proof.server.requests.clear()
        page.reload()
        second = load(page)
        again = weight_bytes(proof.server)
    return again == 0, f"first visit {sent:,} bytes of weights in {first:.1f} s, second {again:,} in {second:.1f} s"


def cuts(proof: Proof) -> tuple[bool, str]:
    """Return a download that is cut anywhere continues with the shards it lacks."""
    names = [f"/site/files/{path.name}" for path in shards(proof.site)]
    sizes = [path.stat().st_size for path in shards(proof.site)]
    random.seed(15)
    resumed, fetched_twice = 0, 0
    with proof.visit() as page:
        for _ in range(20):
            page.evaluate(EMPTY_STORE)
            at = random.randrange(sum(sizes))
            number = next(n for n in range(len(sizes)) if at < sum(sizes[: n + 1]))
            cut = Fault(cut=at - sum(sizes[:number]))
            proof.server.fault = lambda path, name=names[number], cut=cut: cut if path == name else None  # type: ignore[misc]
            proof.server.requests.clear()
            _failing_load(page)
            whole = {request.path for request in proof.server.asked(".bin") if request.whole}
            proof.server.fault = lambda path: None
            proof.server.requests.clear()
            load(page)
            resumed += 1
            fetched_twice += sum(request.path in whole for request in proof.server.asked(".bin"))
            page.evaluate("() => globalThis.model.dispose()")
    return fetched_twice == 0, f"{resumed} of 20 cuts resumed; shards fetched again that were whole: {fetched_twice}"


def _failing_load(page: Page) -> str:
    return str(
        page.evaluate("""async () => {
  const { load } = await import("/site/player/src/index.js");
  return load("/site/", { worker: true }).then(() => "loaded", (error) => error.code);
}""")
    )


def damage(proof: Proof) -> tuple[bool, str]:
    """A flipped byte in any file is noticed, and the file fetched once more."""
    wrong: list[str] = []
    with proof.visit() as page:
        load(page)
        used = sorted(
            {r.path for r in proof.server.requests if "/files/" in r.path or r.path.endswith("manifest.json")}
        )
    for name in used:
        with proof.visit() as page:
            bad = {name: 1}
            proof.server.fault = lambda path, bad=bad: _flip_once(path, bad)  # type: ignore[misc]
            load(page)
            if len([r for r in proof.server.requests if r.path == name]) != 2:
                wrong.append(name)
    return (
        not wrong,
        f"{len(used) - len(wrong)} of {len(used)} files that were damaged once were fetched once more; {wrong}",
    )


def _flip_once(path: str, bad: dict[str, int]) -> Fault | None:
    if bad.get(path, 0) > 0:
        bad[path] -= 1
        return Fault(flip=100)
    return None


def heap(proof: Proof) -> tuple[bool, str]:
    """JavaScript's memory while a model is loaded, above that of the empty page."""
    with proof.visit() as page:
        session = page.context.new_cdp_session(page)

        def used() -> tuple[int, int]:
            usage = session.send("Runtime.getHeapUsage")
            return int(usage["usedSize"] + usage["backingStorageSize"]), int(usage["embedderHeapUsedSize"])

        session.send("HeapProfiler.collectGarbage")
        idle, _ = most, beside = used()
        page.evaluate(BEGIN)
        while page.evaluate("() => globalThis.ended") is None:
            now, browser = used()
            most, beside = max(most, now), max(beside, browser)
            time.sleep(0.01)
        ended = page.evaluate("() => globalThis.ended")
    grown = (most - idle) / 1e6
    said = f"{ended}; at most {grown:.1f} MB above the {idle / 1e6:.1f} MB of an idle page"
    return ended == "ready" and grown <= 48, f"{said}; the browser's own objects beside them {beside / 1e6:.1f} MB"


def losses(proof: Proof) -> tuple[bool, str]:
    """Destroy the device while the model loads, prefills or decodes; the greedy text must stay the same."""
    request = {**greedy(12)[2]}
    with proof.visit() as page:
        load(page, worker=False)
        expected = answer(page, request)
    good = 0
    for turn in range(20):
        with proof.visit() as page:
            page.evaluate(WATCH_DEVICES)
            page.evaluate(BEGIN)
            if turn % 3 == 0:
                _destroy_when(page, "() => globalThis.devices.length && globalThis.progress.done > 0")
            _until(page, "() => globalThis.ended !== null")
            page.evaluate(ASK, request)
            if turn % 3 == 1:
                _destroy_when(page, "() => true")
            elif turn % 3 == 2:
                _destroy_when(page, f"() => globalThis.pieces > {1 + turn // 3}")
            _until(page, "() => globalThis.ended !== null && globalThis.ended !== 'ready'")
            good += (
                page.evaluate("() => globalThis.ended") == expected
                and page.evaluate("() => globalThis.devices.length") > 1
            )
    return good == 20, f"{good} of 20 lost devices were replaced, and the answer was the same"


def _destroy_when(page: Page, condition: str) -> None:
    _until(page, condition)
    page.evaluate("() => globalThis.devices.at(-1).destroy()")


def _until(page: Page, condition: str) -> None:
    page.wait_for_function(condition, polling=5)


def aborts(proof: Proof) -> tuple[bool, str]:
    """An abort ends what is under way within 300 ms, and the page continues."""
    request = greedy(12)[0]
    context = json.loads((proof.site / "manifest.json").read_text())["language"]["context_length"]
    long = {**request, "messages": [{"role": "user", "content": "a b " * (context // 8)}], "max_tokens": 4}
    times: dict[str, float] = {}
    for stage in ("weights", "compile", "prompt", "answer"):
        with proof.visit() as page:
            page.evaluate(BEGIN)
            if stage in ("weights", "compile"):
                _until(page, f"() => globalThis.progress.stage === '{stage}' || globalThis.ended")
            else:
                _until(page, "() => globalThis.ended === 'ready'")
                page.evaluate(ASK, long if stage == "prompt" else request)
                _until(page, "() => true" if stage == "prompt" else "() => globalThis.pieces > 2")
            times[stage], ended = page.evaluate(STOP)
            if "abort" not in ended.lower():
                return False, f"an abort during {stage} ended with {ended}"
            if stage in ("weights", "compile"):
                load(page, worker=False)
            if len(answer(page, {**request, "max_tokens": 3})) != 3:
                return False, f"no answer after an abort during {stage}"
    said = ", ".join(f"{stage} {ms:.0f} ms" for stage, ms in times.items())
    return max(times.values()) <= 300, f"ended after: {said}; the page answered afterwards"


def at_once(proof: Proof) -> tuple[bool, str]:
    """Four conversations have the tokens they have alone, and together more of them a second."""
    requests = [{**request, "max_tokens": 24} for request in greedy(24)[:4]]
    with proof.visit() as page:
        load(page)
        alone, seconds = [], []
        for request in requests:
            (tokens,), took = together(page, [request])
            alone.append(tokens)
            seconds.append(took)
        together(page, requests)  # makes the larger pool
        all_tokens, took = together(page, requests)
    gain = sum(seconds) / took
    return (
        all_tokens == alone and gain >= 2,
        f"tokens {'as' if all_tokens == alone else 'NOT as'} alone; {gain:.2f} x the tokens a second",
    )


PROOFS: dict[str, Callable[[Proof], tuple[bool, str]]] = {
    proof.__name__: proof for proof in (equal, visits, cuts, damage, heap, losses, aborts, at_once)
}


def run(proof: Proof, names: list[str]) -> Iterator[bool]:
    for name in names:
        began = time.perf_counter()
        good, said = PROOFS[name](proof)
        print(f"{name}: {'ok' if good else 'NOT OK'}: {said} ({time.perf_counter() - began:.0f} s)", flush=True)
        yield good
