"""Files stay from visit to visit, downloads continue where they broke off, and nothing damaged is believed."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import webpte
from tests.support.harness.gate import slow_but
from tests.support.harness.site_server import Fault
from tests.support.harness.writer import simple_pte
from webpte.bundles import methods
from webpte.container import DType, VkTensor

from .calls import call, load
from .test_model import one_shape

F32 = DType.FLOAT32
WEIGHTS = np.random.default_rng(15).standard_normal((16, 256), np.float32)
NO_FOLDER = "Object.defineProperty(StorageManager.prototype, 'getDirectory', { value: undefined })"
NO_CACHE = "Object.defineProperty(globalThis, 'caches', { value: undefined })"
KEPT = """async () => {
  const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("webpte", { create: true });
  const names = [];
  for await (const name of folder.keys()) names.push(name);
  return names;
}"""
FLIP = """async (name) => {
  const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("webpte");
  const handle = await folder.getFileHandle(name);
  const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
  bytes[bytes.length >> 1] ^= 1;
  const stream = await handle.createWritable();
  await stream.write(bytes);
  await stream.close();
}"""
HASTE = """() => {
  const wait = setTimeout; // patience with the store ends a hundred times sooner
  globalThis.setTimeout = (what, ms, ...more) => wait(what, ms === 5000 ? ms / 100 : ms, ...more);
}"""
# Patience with the network ends for a file as soon as nothing else is waited for: that one has stalled.
STALLED = """(name) => {
  const { setTimeout: begin, clearTimeout: clear, fetch: get } = globalThis;
  const waiting = new Map();
  globalThis.setTimeout = (what, ms, ...more) => {
    const timer = begin(what, ms, ...more);
    if (ms === 60_000) waiting.set(timer, what);
    return timer;
  };
  globalThis.clearTimeout = (timer) => (waiting.delete(timer), clear(timer));
  globalThis.fetch = (url, ...more) => {
    if (String(url).endsWith(name)) {
      globalThis.fetch = get;
      const looking = setInterval(() => {
        if (waiting.size !== 1) return;
        clearInterval(looking);
        [...waiting.values()][0]();
      }, 20);
    }
    return get(url, ...more);
  };
}"""
SILENT = {
    "reading": "() => { Blob.prototype.stream = () => new ReadableStream({ type: 'bytes' }); }",
    "looking": "() => { FileSystemFileHandle.prototype.getFile = () => new Promise(() => {}); }",
    "writing": "() => { FileSystemFileHandle.prototype.createWritable = () => new Promise(() => {}); }",
}
FORGET = """async () => (await navigator.storage.getDirectory()).removeEntry("webpte", { recursive: true })"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A bundle of x * weights: many small shards, and one kernel."""
    folder = tmp_path_factory.mktemp("sharded")
    values = [VkTensor(F32, WEIGHTS.shape), VkTensor(F32, WEIGHTS.shape, constant_id=0), VkTensor(F32, WEIGHTS.shape)]
    simple_pte(folder / "scaled.pte", values, [("aten.mul.Tensor", (0, 1, 2))], [0], [2], [WEIGHTS])
    with pytest.MonkeyPatch.context() as patch, webpte.load(folder / "scaled.pte") as loaded:
        patch.setattr(methods, "MAX_SHARD_BYTES", 2048)
        webpte.bundle(loaded, folder / "site")
    assert len(list((folder / "site" / "files").glob("*.bin"))) == 8
    return folder / "site"


@pytest.fixture
def visit(page, server, site):
    """Load the model as on a visit, and see that it is right."""
    server.folders["site"] = site

    def load_and_call(worker=False):
        server.requests.clear()
        load(page, f"{server.origin}/site/", worker)
        np.testing.assert_array_equal(call(page, [np.full_like(WEIGHTS, 2)])[0], 2 * WEIGHTS)
        page.evaluate("model.dispose()")
        return page.evaluate("events")

    return load_and_call


@pytest.mark.parametrize(
    "place", slow_but(["folder in the worker", "cache"], ["folder", "folder in the worker", "cache", "nowhere"])
)
def test_visit_cached_fetches_manifest_only(place, visit, server, page):
    if place in ("cache", "nowhere"):
        page.evaluate(NO_FOLDER)
    if place == "nowhere":
        page.evaluate(NO_CACHE)
    events = visit(worker="worker" in place)
    total = sum(request.sent for request in server.asked(".bin"))
    assert events[-1]["done"] == events[-1]["total"] == total > 0 and events[-1]["cached"] == 0
    events = visit(worker="worker" in place)
    again = [request for request in server.requests if "/files/" in request.path]
    if place == "nowhere":
        assert sum(request.sent for request in server.asked(".bin")) == total and events[-1]["cached"] == 0
    else:
        assert not again and len(server.asked("manifest.json")) == 1 and events[-1]["cached"] == total


@pytest.mark.parametrize("cuts", slow_but([4], [4, 20]))
def test_download_interrupted_resumes(cuts, visit, server, page, site):
    """Cut at random bytes, each by a network that then is gone: no shard that was complete is fetched again."""
    sizes = {f"/site/files/{path.name}": path.stat().st_size for path in (site / "files").glob("*.bin")}
    rng = random.Random(15)
    lock = threading.Lock()
    for _ in range(cuts):
        left = rng.randrange(sum(sizes.values()))

        def cut(path):
            nonlocal left
            if path not in sizes:
                return None
            with lock:
                left -= sizes[path]
                return Fault(cut=max(0, left + sizes[path])) if left < 0 else None

        server.fault = cut
        with pytest.raises(Exception, match="network: files/"):
            visit()
        complete = {request.path for request in server.asked(".bin") if request.whole}
        server.fault = lambda path: None
        events = visit()
        fetched = [request.path for request in server.asked(".bin")]
        assert sorted(fetched) == sorted(sizes.keys() - complete)
        assert events[-1]["cached"] == sum(sizes[path] for path in complete)
        page.evaluate(FORGET)


@pytest.mark.parametrize("suffix", slow_but([".bin", "manifest.json"], [".bin", ".wgsl", ".json", "manifest.json"]))
def test_download_damaged_is_named_and_fetched_once_more(suffix, visit, server, page):
    damaged: list[str] = []
    times = 1

    def flip(path):
        nonlocal times
        wrong = path.removeprefix("/site/")
        if not times or not path.endswith(suffix) or (damaged and wrong != damaged[0]):
            return None
        times -= 1
        damaged.append(wrong)
        return Fault(flip=200)

    server.fault = flip
    events = visit()
    name = damaged[0]
    assert [event["damagedFile"] for event in events if "damagedFile" in event] == [name]
    assert len(server.asked(name)) == 2
    page.evaluate(FORGET)
    times = 2
    with pytest.raises(Exception, match=f"damaged: {name}"):
        visit()
    assert len(server.asked(name)) == 2
    visit()  # and a third time it is right


@pytest.mark.parametrize("stride", slow_but([4], [4, 1]))  # of the files
def test_store_damaged_file_is_named_and_fetched_again(stride, visit, server, page):
    visit()
    names = sorted(page.evaluate(KEPT), key=lambda name: not name.startswith("manifest"))
    assert len(names) > 8
    for name in (names[0], *names[1::stride]):
        page.evaluate(FLIP, name)
        events = visit()
        if name.startswith("manifest"):  # which is used without a network only
            assert not [event for event in events if "damagedFile" in event]
            continue
        (damaged,) = [event["damagedFile"] for event in events if "damagedFile" in event]
        assert name in damaged and damaged.endswith("in the local store")
        assert [request.path for request in server.requests if name in request.path] == [
            request.path for request in server.requests if "/files/" in request.path
        ]


def test_visit_offline_uses_store(visit, server, page):
    visit()
    server.fault = lambda path: Fault(status=503) if path.startswith("/site/") else None
    visit()
    (manifest,) = (name for name in page.evaluate(KEPT) if name.startswith("manifest"))
    page.evaluate(FLIP, manifest)
    with pytest.raises(Exception, match=r"network: manifest\.json: .* 503"):
        visit()


@pytest.mark.parametrize("job", SILENT)
def test_store_unresponsive_is_skipped(job, visit, server, page):
    """As Chromium's, at times, when a file is replaced that is being read."""
    if job != "writing":
        visit()
    page.evaluate(HASTE)
    page.evaluate(SILENT[job])
    events = visit()
    assert len(server.asked(".bin")) == 8 and events[-1]["cached"] == 0


def test_download_stalled_is_restarted(visit, server, page, site):
    name = min(path.name for path in (site / "files").glob("*.bin"))
    page.evaluate(STALLED, name)
    asked: list[str] = []
    over = threading.Event()

    def stall(path):
        if not path.endswith(".bin"):
            return None
        asked.append(path)
        return Fault(cut=100, pause=over) if path.endswith(name) and asked.count(path) == 1 else None

    server.fault = stall
    try:
        visit()
    finally:
        over.set()
    assert len(asked) == 9 and sum(path.endswith(name) for path in asked) == 2


def test_files_of_an_older_bundle_are_cleared_away(visit, server, page, site, bundled):
    server.folders["other"] = bundled("add_external", one_shape)[1]
    load(page, f"{server.origin}/other/", False)
    visit()
    ours, theirs = ({path.stem for path in (folder / "files").iterdir()} for folder in (site, server.folders["other"]))
    kept = set(page.evaluate(KEPT))
    assert len(kept & ours) > 8 and len(kept & theirs) > 2  # of the variants that were chosen
    server.folders["site"] = server.folders["other"]
    load(page, f"{server.origin}/site/", False)
    assert {name for name in page.evaluate(KEPT) if not name.startswith("manifest")} == kept & theirs


def test_download_holds_at_most_two_shards(visit, server, page, site):
    held = threading.Event()
    asked = []

    def hold(path):
        if not path.endswith(".bin"):
            return None
        asked.append(path)
        return Fault(pause=held)

    server.fault = hold
    page.evaluate(
        """(url) => void import("/web/src/index.js").then(async ({ load }) => {
          globalThis.model = await load(url, { worker: false });
        })""",
        f"{server.origin}/site/",
    )
    while len(asked) < 2:
        page.wait_for_timeout(20)
    page.wait_for_timeout(300)
    assert len(asked) == 2
    held.set()
    page.wait_for_function("globalThis.model")
    assert len(asked) == len(list((site / "files").glob("*.bin")))
