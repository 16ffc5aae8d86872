"""State: forks share weights and nothing else, snapshots continue in another process, another program's is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.harness.children import run_python
from tests.support.harness.errors import raises


@pytest.fixture
def llama():
    exported = export("llama")
    with webpte.load(exported.path) as program:
        yield program.method(), exported


def test_forks_interleaved_equal_separate_runs(llama):
    forward, exported = llama
    first, second = exported.sequences
    other = forward.fork()
    other.reset()
    for step in range(max(len(first), len(second))):
        for method, sequence in ((forward, first), (other, second)):
            if step < len(sequence):
                got = method(*sequence[step].inputs)
                assert_close(got, sequence[step].outputs[0], 1e-5, 0, f"step {step}")


def test_fork_starts_from_current_state(llama):
    forward, exported = llama
    prefill, *decode = exported.sequences[0]
    forward(*prefill.inputs)
    fork = forward.fork()
    for step in decode:
        assert np.array_equal(forward(*step.inputs), fork(*step.inputs))


def test_forks_share_the_weights(llama):
    forward, _ = llama
    before = forward.counters.snapshot()
    forward.fork()
    assert forward.counters.since(before).constant_bytes == 0


def test_snapshot_continues_in_another_process(llama, tmp_path):
    forward, exported = llama
    prefill, *decode = exported.sequences[0]
    forward(*prefill.inputs)
    forward.snapshot(tmp_path / "state")
    inputs = [[a.tolist() for a in step.inputs] for step in decode]
    child = """
import json, sys
import numpy as np
import webpte
with webpte.load(sys.argv[1]) as program:
    forward = program.method()
    forward.restore(sys.argv[2])
    print(json.dumps([forward(*map(np.array, step)).tolist() for step in json.loads(sys.argv[3])]))
"""
    results = json.loads(run_python(child, exported.path, tmp_path / "state", json.dumps(inputs)))
    for step, result in zip(decode, results, strict=True):
        assert np.array_equal(forward(*step.inputs), np.array(result, np.float32))
    assert not list(tmp_path.glob("*.part"))


def test_foreign_and_broken_snapshots_are_refused_without_changes(llama, tmp_path):
    forward, exported = llama
    prefill, decode = exported.sequences[0][:2]
    forward(*prefill.inputs)
    good = tmp_path / "good"
    forward.snapshot(good)
    with webpte.load(export("sdpa_cache_inputs_live").path) as other:
        other.method().snapshot(tmp_path / "other")
    (tmp_path / "cut").write_bytes(good.read_bytes()[:-1])
    (tmp_path / "text").write_text("hello")
    for name, error, code in (
        ("other", webpte.DataError, "other_program"),
        ("cut", webpte.FormatError, "truncated"),
        ("text", webpte.FormatError, "bad_magic"),
        ("none", webpte.FormatError, "unreadable"),
    ):
        with raises(error, tmp_path / name, code=code):
            forward.restore(tmp_path / name)
    assert_close(forward(*decode.inputs), decode.outputs[0], 1e-5, 0, "after refused restores")


def test_outputs_only_requested_are_read_back():
    exported = export("rotary_dynamic")
    step = exported.steps[0]
    with webpte.load(exported.path) as program:
        forward = program.method()
        before = forward.counters.snapshot()
        (got,) = forward.run(step.inputs, outputs=[1])
        assert_close(got, step.outputs[1], 1e-5, 0, "key")
        assert forward.counters.since(before).output_bytes == step.outputs[1].nbytes


def test_scalar_derived_from_data_is_not_stale():
    """sdpa_cache_inputs_live reads its position from data; the same shapes, another position each time."""
    exported = export("sdpa_cache_inputs_live")
    with webpte.load(exported.path) as program:
        for step in (*exported.steps, *reversed(exported.steps)):
            for got, want in zip(program.method().run(step.inputs), step.outputs, strict=True):
                assert_close(got, want, 1e-5, 1e-5, "position")
