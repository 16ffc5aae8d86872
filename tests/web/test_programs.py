"""Programs in a page and in Node give the results of the native program."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.gate import slow_but
from tests.support.models.matmul import convolutions_2d

from .calls import open_program, run

# Numbers as outputs, several dtypes, two methods that share a weight, state, images of any size, a language model.
PROGRAMS = (
    "add_external", "dynamic_broadcast", "dynamic_size_output", "integers", "half", "two_methods",
    "sdpa_cache_inputs_live", "mtcnn_pnet", convolutions_2d, "llama_4w_emb4",
)  # fmt: skip
IN_THE_GATE = ("dynamic_size_output", "integers", "two_methods", "sdpa_cache_inputs_live")
TOLERANCE = 1e-4  # the kernels are the same; the devices differ in how they round and fuse


def shapes_of(exported):
    shapes: dict[str, list[list[tuple[int, ...]]]] = {}
    for step in exported.steps:
        dims = [np.shape(array) for array in step.inputs]
        if dims not in shapes.setdefault(step.method, []):
            shapes[step.method].append(dims)
    return shapes


@pytest.mark.parametrize("program", slow_but(IN_THE_GATE, PROGRAMS))
def test_call_of_player_equals_native(program, bundled, server, host):
    exported, server.folders["site"] = bundled(program, shapes_of)
    with webpte.load(exported.path, data=exported.data) as native:
        for sequence in exported.sequences:
            assert open_program(host, f"{server.origin}/site/") in ("program", "image")  # its state begins anew
            for method in {step.method for step in sequence}:
                native.method(method).reset()
            for step in sequence:
                actual = run(host, step.inputs, step.method)
                reference = native.method(step.method).run(step.inputs)
                assert [np.shape(array) for array in actual] == [np.shape(array) for array in reference]
                for array, expected in zip(actual, reference, strict=True):
                    np.testing.assert_allclose(array, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_call_wrong_inputs_are_refused(bundled, server, host):
    exported, server.folders["site"] = bundled("dynamic_broadcast", shapes_of)
    open_program(host, f"{server.origin}/site/")
    inputs = exported.steps[0].inputs
    for wrong, shown in (
        ([*inputs, inputs[0]], r"input: inputs of forward: expected 2, got 3"),
        ([inputs[0].T, inputs[1]], r"input: input 0 of forward: .*\[29, 8\], got \[8, 17\]"),
        ([inputs[0][:2], inputs[1][:2]], r"shape: inputs of forward: .* out of \[.*got \[2, 8\] \[2, 1\]"),
    ):
        with pytest.raises(Exception, match=shown):
            run(host, wrong)


def test_call_creates_no_gpu_objects(bundled, server, host):
    exported, server.folders["site"] = bundled("sdpa_cache_inputs_live", shapes_of)
    open_program(host, f"{server.origin}/site/")
    inputs = [step.inputs for step in exported.sequences[0]]
    for args in inputs:
        run(host, args)
    host.evaluate("""() => {
      globalThis.made = [];
      for (const name of Object.getOwnPropertyNames(GPUDevice.prototype)) {
        if (!name.startsWith("create") || name === "createCommandEncoder") continue;
        const make = GPUDevice.prototype[name];
        GPUDevice.prototype[name] = function (...args) { globalThis.made.push(name); return make.apply(this, args); };
      }
    }""")
    for args in inputs:
        run(host, args)
    assert host.evaluate("globalThis.made") == []


def test_steps_in_one_submit_equal_single_calls(bundled, server, host):
    """Outputs that become inputs on the device, and inputs and live integers that differ from step to step."""
    _, server.folders["site"] = bundled("llama_4w_emb4", shapes_of)
    open_program(host, f"{server.origin}/site/")
    result = host.evaluate("""async () => {
      const method = await globalThis.program.method();
      const submits = [];
      const submit = GPUQueue.prototype.submit;
      GPUQueue.prototype.submit = function (list) { submits.push(list.length); return submit.call(this, list); };
      const steps = [3, 14, 15, 92, 65].map((token, i) => [{ data: [token], dims: [1, 1] }, { data: [i], dims: [1] }]);
      const single = [];
      for (const step of steps) single.push(Array.from((await method.run(step))[0].data));
      method.reset();
      submits.length = 0;
      const together = await method.runSteps(steps, {}, [0]);
      return { single, together: together.map(([logits]) => Array.from(logits.data)), submits };
    }""")
    assert result["single"] == result["together"] and result["submits"] == [1]
