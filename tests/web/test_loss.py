"""A device that is lost is replaced: by itself, from the local copy, with whatever was under way."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.gate import slow_but

from .calls import argument, call, load
from .test_model import one_shape
from .test_programs import shapes_of

# Every call that a load makes on a device is a moment to lose it at; `-1` only counts them.
LOADED_UNDER_LOSS = """async ([url, moments]) => {
  const { load } = await import("/web/src/index.js");
  const { getOwnPropertyDescriptors: methodsOf } = Object;
  globalThis.unchanged ??= [GPUDevice, GPUQueue].map(({ prototype }) => [prototype, methodsOf(prototype)]);
  let calls = 0;
  let [moment, ...later] = moments;
  for (const [prototype, methods] of globalThis.unchanged) {
    for (const [name, { value }] of Object.entries(methods)) {
      if (typeof value !== "function" || name === "destroy" || name === "constructor") continue;
      prototype[name] = function (...args) {
        if (this instanceof GPUDevice) globalThis.device = this;
        if (calls++ === moment) {
          calls = 0;
          [moment, ...later] = later;
          globalThis.device.destroy();
        }
        return value.apply(this, args);
      };
    }
  }
  globalThis.model = await load(url, { worker: false });
  for (const [prototype, methods] of globalThis.unchanged) Object.defineProperties(prototype, methods);
  return { calls, left: later.length + (moment >= 0) };
}"""
DURING = """async ([args, delay]) => {
  const running = model.run(args).then((found) => Array.from(found[0].data), (error) => error.code);
  if (delay) await new Promise((resolve) => setTimeout(resolve, delay));
  await model.loseDevice();
  return running;
}"""


def until_recovered(page, count):
    page.wait_for_function("(count) => model.recoveries >= count", arg=count)


@pytest.mark.slow
@pytest.mark.parametrize("worker", slow_but([True], [True, False]))
def test_call_without_state_device_lost_is_repeated(worker, bundled, server, page):
    exported, server.folders["site"] = bundled("llama_nokv", one_shape)
    load(page, f"{server.origin}/site/", worker)
    step = exported.steps[0]
    server.requests.clear()
    for count, delay in enumerate((0, 1, 5), 1):
        result = page.evaluate(DURING, [[argument(array) for array in step.inputs], delay])
        np.testing.assert_allclose(np.array(result), step.outputs[0].ravel(), rtol=1e-4, atol=1e-4)
        until_recovered(page, count)
    stages = [event["stage"] for event in page.evaluate("events")]
    assert stages.count("lost") == stages.count("recovered") == 3
    assert stages.index("lost") < stages.index("recover") < stages.index("recovered")
    assert not server.requests  # all of it came from the local store


def test_call_with_state_device_lost_raises(bundled, server, page):
    exported, server.folders["site"] = bundled("llama_4w_emb4", one_shape)
    load(page, f"{server.origin}/site/")
    first = exported.steps[0]
    expected = call(page, first.inputs)[0]
    assert page.evaluate(DURING, [[argument(array) for array in first.inputs], 0]) == "device-lost"
    np.testing.assert_array_equal(call(page, first.inputs)[0], expected)  # from the beginning again
    page.evaluate("model.loseDevice()")
    until_recovered(page, 2)
    with pytest.raises(Exception, match="device-lost: "):  # no one was calling when it happened
        call(page, first.inputs)
    np.testing.assert_array_equal(call(page, first.inputs)[0], expected)


@pytest.mark.parametrize("stride", slow_but([4], [4, 1]))
def test_load_device_lost_at_each_moment_completes(stride, bundled, server, page):
    """Devices, each lost at another call; some of them while the loss of the one before is made good."""
    exported, server.folders["site"] = bundled("two_methods", shapes_of)
    step = exported.steps[0]
    url = f"{server.origin}/site/"
    calls = page.evaluate(LOADED_UNDER_LOSS, [url, [-1]])["calls"]
    page.evaluate("model.dispose()")
    assert calls > 20
    once = [[calls * part // 15] for part in range(14)]
    for moments in [*once, [calls // 2, 1], [calls // 3, calls // 2], [calls * 2 // 3, calls // 4]][::stride]:
        outcome = page.evaluate(LOADED_UNDER_LOSS, [url, moments])
        assert outcome["left"] == 0
        np.testing.assert_allclose(
            call(page, step.inputs, method=step.method)[0], step.outputs[0], rtol=1e-4, atol=1e-4
        )
        until_recovered(page, 1)
        assert page.evaluate("model.recoveries") <= len(moments)
        page.evaluate("model.dispose()")


def test_dispose_device_lost_frees_everything(bundled, server, page):
    _, server.folders["site"] = bundled("add_external", one_shape)
    result = page.evaluate(
        """async (url) => {
          const { load } = await import("/web/src/index.js");
          const living = new Set();
          const devices = [];
          const request = GPUAdapter.prototype.requestDevice;
          GPUAdapter.prototype.requestDevice = async function (...args) {
            devices.push(await request.apply(this, args));
            return devices.at(-1);
          };
          const { createBuffer } = GPUDevice.prototype;
          GPUDevice.prototype.createBuffer = function (...args) {
            const buffer = createBuffer.apply(this, args);
            living.add(buffer);
            return buffer;
          };
          const { destroy } = GPUBuffer.prototype;
          GPUBuffer.prototype.destroy = function () {
            living.delete(this);
            destroy.call(this);
          };
          const model = await load(url, { worker: false });
          const before = living.size;
          const lost = [];
          model.addEventListener("lost", () => lost.push(1));
          model.dispose();
          await devices[0].lost;
          await new Promise((resolve) => setTimeout(resolve, 50));
          return { before, living: living.size, devices: devices.length, lost: lost.length };
        }""",
        f"{server.origin}/site/",
    )
    assert result["before"] > 0
    assert (result["living"], result["devices"], result["lost"]) == (0, 1, 0)
