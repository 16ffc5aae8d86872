"""Whole programs, exported by real ExecuTorch, against eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.harness.errors import raises
from tests.support.models.programs import PROGRAMS, ROTARY_SHAPES, rotary_name

TOLERANCE = {"half": 2e-3, "llama_4w_fp16": 2e-3}


def check(program, exported, tolerance):
    for sequence in exported.sequences:
        for name in program.method_names:
            program.method(name).reset()
        for step in sequence:
            outputs = program.method(step.method).run(step.inputs)
            for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
                where = f"{exported.name}, output {position}, inputs {[a.shape for a in step.inputs]}"
                got = np.asarray(got)
                assert got.dtype == want.dtype, where
                assert_close(got, want, tolerance, tolerance, where)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_equals_eager(name):
    exported = export(name)
    with webpte.load(exported.path, data=exported.data) as program:
        check(program, exported, TOLERANCE.get(name, 1e-5))


@pytest.mark.parametrize("name", ["add", "add_tied", "add_equal_bytes", "add_external"])
def test_constants_are_exact(name):
    exported = export(name)
    with webpte.load(exported.path, data=exported.data) as program:
        check(program, exported, 0)


@pytest.mark.parametrize("shape", ROTARY_SHAPES, ids=str)
def test_rotary_against_eager_and_a_float64_formula(shape):
    exported = export(rotary_name(*shape))
    with webpte.load(exported.path) as program:
        check(program, exported, 1e-6)
        for step in exported.steps:
            outputs = program.method()(*step.inputs)
            xq, xk, cos, sin = (a.astype(np.float64) for a in step.inputs)
            for got, x in zip(outputs, (xq, xk), strict=True):
                # A pair is a complex number, the rotation a multiplication by cos + i sin.
                turned = x.view(np.complex128) * (cos + 1j * sin)[:, None, :]  # (B, S, H, D/2)
                assert_close(got, turned.view(np.float64).reshape(x.shape), 1e-6, 0, str(shape))


def test_rotary_covers_prefill_and_decode():
    lengths = [shape[0] for shape in ROTARY_SHAPES]
    assert len(ROTARY_SHAPES) == 12 and min(lengths) == 1 and max(lengths) > 16


class TestLlama:
    """One loaded program computes prefill and decode."""

    def test_counters_of_a_decode_step(self):
        exported = export("llama")
        with webpte.load(exported.path) as program:
            forward = program.method()
            counters = forward.counters
            first, *decode = exported.sequences[0]
            forward(*first.inputs)
            forward(*decode[0].inputs)  # the first call at this shape builds its schedule
            for step in decode[1:]:
                before, lowered = counters.snapshot(), forward.lowerings
                forward(*step.inputs)
                done = counters.since(before)
                assert (done.buffers, done.bind_groups, done.pipelines, done.shader_modules) == (0, 0, 0, 0)
                assert (done.passes, done.submits) == (1, 1)
                assert forward.lowerings == lowered
                assert done.uniform_bytes <= 3 * 16  # the live scalars, nothing else
                assert done.output_bytes == step.outputs[0].nbytes

    def test_returning_to_a_known_shape_lowers_nothing(self):
        exported = export("llama")
        with webpte.load(exported.path) as program:
            forward = program.method()
            prefill, decode = exported.sequences[0][:2]
            for step in (prefill, decode):
                forward(*step.inputs)
            forward.reset()
            before, lowered = forward.counters.snapshot(), forward.lowerings
            got = forward(*prefill.inputs)
            assert forward.counters.since(before).bind_groups == 0
            assert forward.lowerings == lowered
            assert_close(got, prefill.outputs[0], 1e-5, 0, "prefill again")

    # The rotary table ends where the cache does, and it is read first: sliced, or at the live position.
    @pytest.mark.parametrize(
        ("passes", "error", "values"),
        [
            ((), webpte.ShapeError, ["apply_rotary_emb", "3 tokens", ", 8]"]),
            (None, webpte.GuardError, ["rotary_attention", "3 tokens", "position {position} ", "64 positions"]),
        ],
    )
    @pytest.mark.parametrize("position", [62, 64, 10**6, -1])
    def test_llama_full_cache_refused_and_session_continues(self, position, passes, error, values):
        exported = export("llama")
        with webpte.load(exported.path, passes=passes) as program:
            forward = program.method()
            prefill, decode = exported.sequences[0][:2]
            forward(*prefill.inputs)
            with raises(error, *(value.format(position=position) for value in values)):
                forward(prefill.inputs[0], np.array([position]))
            assert_close(forward(*decode.inputs), decode.outputs[0], 1e-5, 0, "after a refused call")

    def test_llama_without_cache_nine_delegates_one_submit(self, capsys):
        exported = export("llama_nokv")
        with webpte.load(exported.path) as program:
            forward = program.method()
            assert len(program.graph("forward").delegates) == 9
            for step in exported.steps:
                before = forward.counters.snapshot()
                got = forward(*step.inputs)
                done = forward.counters.since(before)
                crossed = done.output_bytes - got.nbytes
                with capsys.disabled():
                    tokens = step.inputs[0].shape[1]
                    print(f"\nllama_nokv, {tokens} tokens: {done.submits} submits, {crossed} bytes to the host between")
                assert (done.submits, crossed) == (1, 0)


@pytest.mark.parametrize("position", [14, 16, -1])
def test_guard_live_scalar_out_of_range_is_refused(position):
    exported = export("sdpa_cache_inputs_live")
    step = exported.steps[0]
    with webpte.load(exported.path) as program:
        forward = program.method()
        at = next(i for i, a in enumerate(step.inputs) if a.dtype == np.int64)
        inputs = [np.full_like(a, position) if i == at else a for i, a in enumerate(step.inputs)]
        with raises(webpte.GuardError, "3 tokens", f"position {position} ", "cache of 16"):
            forward(*inputs)
        check(program, exported, 1e-5)


def test_static_graph_second_call_creates_nothing():
    exported = export("add")
    with webpte.load(exported.path) as program:
        forward = program.method()
        forward(*exported.steps[0].inputs)
        before, lowered = forward.counters.snapshot(), forward.lowerings
        forward(*exported.steps[1].inputs)
        done = forward.counters.since(before)
        assert forward.lowerings == lowered
        assert (done.uniform_bytes, done.constant_bytes, done.bind_groups, done.buffers) == (0, 0, 0, 0)


def test_constants_cross_once():
    exported = export("llama")
    with webpte.load(exported.path) as program, webpte.load(export("add").path) as other:
        counters = other.method().counters  # of the device that both share
        before = counters.snapshot()
        forward = program.method()
        distinct = sum(b.nbytes for b in forward.plan.buffers if b.kind == "constant")
        assert 0.9 * distinct < counters.since(before).constant_bytes <= 1.01 * distinct
        before = counters.snapshot()
        for step in exported.steps:
            forward(*step.inputs)
        assert counters.since(before).constant_bytes == 0


def test_runtime_api_runs_like_executorch():
    exported = export("add")
    method = webpte.Runtime.get().load_program(exported.path).load_method("forward")
    (got,) = method.execute(list(exported.steps[0].inputs))
    assert_close(got, exported.steps[0].outputs[0], 0, 0, "execute")


def test_torch_tensors_and_dlpack_are_inputs():
    import torch

    exported = export("add")
    (x,), (want,) = exported.steps[0].inputs, exported.steps[0].outputs
    with webpte.load(exported.path) as program:
        for value in (
            torch.from_numpy(x),
            torch.from_numpy(x).requires_grad_(),
            memoryview(x.data),
            np.asfortranarray(x),
        ):
            assert_close(program.method()(value), want, 0, 0, type(value).__name__)
