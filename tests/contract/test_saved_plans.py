"""A few exported programs from their saved plans, in another process. `python -m tests.studies saved_plans` runs them
all."""

from __future__ import annotations

import json
import random

import pytest

import webpte
from tests.studies.fuzz.documents import changed, ways_by_field
from tests.studies.saved_plans.__main__ import compare
from tests.studies.saved_plans.child import calls
from tests.studies.saved_plans.jobs import of_programs, smaller
from tests.studies.saved_plans.saving import save
from tests.support.harness.errors import raises
from tests.support.harness.player import Player
from webpte.device import adapter_caps

# Constants in two files; kernels on the CPU; jumps on data; two methods; 64 bits; f16; sizes as outputs; a KV cache.
QUICK = (
    "add_external", "mixed_kernels", "branch_on_data", "two_methods", "integers", "half", "dynamic_size_output",
    "llama_4w_emb4",
)  # fmt: skip
FUZZED = ("branch_on_data", "sdpa_cache_inputs_live")


def test_saved_plan_bits_equal_ordinary_path():
    outcomes = list(compare(of_programs(QUICK.__contains__)))
    assert {(outcome.kind, outcome.why) for outcome in outcomes} == {("right", "")}
    assert len(outcomes) == len(QUICK) + 1  # one program has two methods
    assert all(outcome.shapes > 1 for outcome in outcomes if not outcome.fixed)


@pytest.mark.parametrize("name", FUZZED)
def test_saved_plan_changed_field_raises_typed_error(name, tmp_path):
    (job,) = of_programs({name}.__contains__)
    assert save(job, tmp_path) is None
    about = json.loads((tmp_path / "job.json").read_text())
    operands = [inputs for inputs, _ in calls(tmp_path, about)][:2]
    document = tmp_path / "plan" / "plan.json"
    text = document.read_text()
    rng = random.Random(5)
    fields = ways_by_field(text)
    done = 0
    for field in [*fields] * 4:
        document.write_text(changed(text, rng.choice(fields[field]), rng))
        try:
            with webpte.open_plan(tmp_path / "plan", about["data"]) as plan:
                for inputs in operands:
                    plan.method().run(inputs)
            done += 1
        except webpte.Error:
            continue
    assert 0 < done < 2 * len(fields)  # most of it matters


def test_saved_plan_second_shape_cut_from_first():
    (job,) = of_programs({"mixed_kernels"}.__contains__)
    with webpte.load(job.path) as program:
        assert smaller([job.sequences[0][0]], program.method().inputs) is None
    (job,) = of_programs({"llama_4w_emb4"}.__contains__)
    with webpte.load(job.path) as program:
        (first, *_), *_ = job.sequences
        cut = smaller([first], program.method().inputs)
    assert cut is not None and cut[0].shape[1] == first[0].shape[1] - first[0].shape[1] // 2


def test_saved_plan_weaker_device_is_refused(tmp_path, monkeypatch):
    """Half precision and subgroups where this device has them; then a plan for a browser, which runs everywhere."""
    (job,) = of_programs({"llama_4w_fp16"}.__contains__)
    monkeypatch.delenv("WEBPTE_DEVICE", raising=False)
    call = job.sequences[0][0]
    with webpte.load(job.path) as program:
        program.method().save(tmp_path / "here")
    features = json.loads((tmp_path / "here" / "plan.json").read_text())["features"]
    assert set(features) == adapter_caps().features & {"shader-f16", "subgroup"}
    monkeypatch.setenv("WEBPTE_DEVICE", "browser")
    if features:
        refused = raises(webpte.DeviceError, "; ".join(features), code="over_limits")
        with webpte.open_plan(tmp_path / "here", [job.path]) as plan, refused:
            plan.method()
    with webpte.load(job.path) as program:
        want = program.method()(*call)
        program.method().save(tmp_path / "browser")
    assert json.loads((tmp_path / "browser" / "plan.json").read_text())["features"] == []
    monkeypatch.delenv("WEBPTE_DEVICE")
    with webpte.open_plan(tmp_path / "browser", [job.path]) as plan:
        assert plan.method()(*call).tobytes() == want.tobytes()


PLAYED = ("add_external", "integers", "half", "dynamic_size_output", "sdpa_cache_inputs_live", "llama_4w_emb4")


@pytest.mark.parametrize("name", PLAYED)
def test_saved_plan_independent_player_same_bits(name, tmp_path):
    """Run a sequence of calls, with the state that it builds up."""
    (job,) = of_programs({name}.__contains__)
    assert save(job, tmp_path) is None
    about = json.loads((tmp_path / "job.json").read_text())
    player = Player(tmp_path / "plan", [job.path, *job.data])
    first = len(about["calls"][0])
    for value, want in [*calls(tmp_path, about)][:first]:
        for ours, theirs in zip(player(*value), want, strict=True):
            assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())
