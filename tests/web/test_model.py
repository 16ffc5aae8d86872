"""The public player: in a worker or not, under a policy, stopped at any moment, given up."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.support.harness.gate import slow_but, slow_rows_but
from tests.support.harness.site_server import Fault

from .calls import call, load
from .test_programs import shapes_of

MOMENTS = [
    ("before", True), ("start", True), ("manifest", False), ("weights", True), ("weights", False), ("compile", True),
]  # fmt: skip
STOPPED = """async ([url, worker, moment]) => {
  const { load } = await import("/web/src/index.js");
  const stop = new AbortController();
  const abort = () => stop.abort();
  if (moment === "before") abort();
  try {
    const onProgress = ({ stage, done }) => {
      if (stage === moment && (done > 0 || moment === "manifest")) abort();
    };
    const loading = load(url, { worker, signal: stop.signal, onProgress });
    if (moment === "start") abort();
    await loading;
    return null;
  } catch (error) {
    return error.code;
  }
}"""


@pytest.mark.parametrize("worker", slow_but([True], [True, False]))
def test_model_worker_option_chooses_worker_or_page(worker, bundled, server, page):
    """Under the strictest policy for scripts, and without isolation from other origins."""
    exported, server.folders["site"] = bundled("mtcnn_pnet", shapes_of)
    server.headers["Content-Security-Policy"] = "default-src 'self'"
    page.goto(f"{server.origin}/blank.html")
    load(page, f"{server.origin}/site/", worker)
    assert not page.evaluate("crossOriginIsolated") and len(page.workers) == worker
    assert page.evaluate("[model.name, model.kind, model.adapter.software, model.info.version]") == [
        "mtcnn_pnet", "image", True, 2,
    ]  # fmt: skip
    for step in exported.steps[2:]:
        actual = call(page, step.inputs)
        for array, expected in zip(actual, step.outputs, strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-4)
    (second,) = call(page, exported.steps[2].inputs, outputs=[1])
    np.testing.assert_allclose(second, exported.steps[2].outputs[1], rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception, match=r"input: method of mtcnn_pnet: .*\bforward\b.*\bother\b"):
        call(page, exported.steps[0].inputs, method="other")
    code, message = page.evaluate(
        "async () => { try { await model.chat.completions.create({ messages: [] }); } "
        "catch (error) { return [error.code, error.message]; } }"
    )
    assert code == "input" and message.startswith("mtcnn_pnet: ") and "image" in message
    page.evaluate("model.dispose()")
    with pytest.raises(Exception, match="disposed: "):
        call(page, exported.steps[0].inputs)
    assert not page.workers


def test_load_progress_covers_manifest_to_end(bundled, server, page):
    _, server.folders["site"] = bundled("mtcnn_pnet", one_shape)
    load(page, f"{server.origin}/site/")
    events = page.evaluate("events")
    stages = [event["stage"] for event in events]
    assert stages[0] == "manifest" and stages[-1] == "ready" and {"weights", "compile"} <= set(stages)
    last = {event["stage"]: event for event in events}
    assert all(0 < last[stage]["done"] == last[stage]["total"] for stage in ("weights", "compile"))
    assert last["weights"]["total"] == sum(request.sent for request in server.asked(".bin"))


def one_shape(exported):
    return {"forward": [[array.shape for array in exported.steps[0].inputs]]}


@pytest.mark.parametrize(("moment", "worker"), slow_rows_but([("weights", False)], MOMENTS))
def test_load_cancelled_ends_and_next_load_works(moment, worker, bundled, server, page):
    exported, server.folders["site"] = bundled("mtcnn_pnet", one_shape)
    held = threading.Event()
    if moment == "weights":
        server.fault = lambda path: Fault(pause=held) if path.endswith(".bin") else None
    try:
        outcome = page.evaluate(STOPPED, [f"{server.origin}/site/", worker, moment])
    finally:
        held.set()
        server.fault = lambda path: None
    assert outcome == "aborted"  # weights were held until now: it has not waited for them
    load(page, f"{server.origin}/site/", worker)
    result = call(page, exported.steps[0].inputs)
    np.testing.assert_allclose(result[0], exported.steps[0].outputs[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("worker", slow_but([True], [True, False]))
def test_call_cancelled_ends_and_next_call_is_exact(worker, bundled, server, page):
    exported, server.folders["site"] = bundled("mtcnn_pnet", one_shape)
    load(page, f"{server.origin}/site/", worker)
    step = exported.steps[0]
    call(page, step.inputs)
    outcome = page.evaluate(
        """async (args) => {
          const stop = new AbortController();
          const calls = [0, 1, 2].map(() => model.run(args, { signal: stop.signal }).then(() => null, (e) => e.code));
          calls[0].then(() => stop.abort()); // the second is under way, and the third waits
          return Promise.all(calls);
        }""",
        [{"data": array.ravel().tolist(), "dims": list(array.shape)} for array in step.inputs],
    )
    assert outcome == [None, "aborted", "aborted"]
    np.testing.assert_allclose(call(page, step.inputs)[0], step.outputs[0], rtol=1e-4, atol=1e-4)


def test_load_workers_forbidden_runs_in_page(bundled, server, page):
    exported, server.folders["site"] = bundled("add_external", shapes_of)
    server.headers["Content-Security-Policy"] = "default-src 'self'; worker-src 'none'"
    page.goto(f"{server.origin}/blank.html")
    load(page, f"{server.origin}/site/")
    assert not page.workers
    np.testing.assert_allclose(call(page, exported.steps[0].inputs)[0], exported.steps[0].outputs[0], rtol=1e-4)


def test_load_without_webgpu_reports_remedy(bundled, server, page):
    _, server.folders["site"] = bundled("add_external", shapes_of)
    page.evaluate("Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined })")
    with pytest.raises(Exception, match="webgpu-missing: "):
        load(page, f"{server.origin}/site/", worker=False)
    page.reload()
    page.evaluate("navigator.gpu.requestAdapter = async () => null")
    with pytest.raises(Exception, match="no-adapter: "):
        load(page, f"{server.origin}/site/", worker=False)


def test_load_missing_bundle_is_named(server, page):
    with pytest.raises(Exception, match=r"network: manifest\.json: .* 404"):
        load(page, f"{server.origin}/nowhere/")
