"""A few exported programs from their saved plans, in another process. `python -m tests.saved_plans` runs them all."""

from __future__ import annotations

import json
import random

import pytest

import webpte
from tests.saved_plans.__main__ import compare
from tests.saved_plans.child import calls
from tests.saved_plans.jobs import of_programs, smaller
from tests.saved_plans.saving import save

pytestmark = pytest.mark.timeout(1200)  # with a cold cache a test exports what it runs

# Constants in two files; kernels on the CPU; jumps on data; two methods; 64 bits; f16; sizes as outputs; a KV cache.
QUICK = (
    "add_external", "mixed_kernels", "branch_on_data", "two_methods", "integers", "half", "dynamic_size_output",
    "llama_4w_emb4",
)  # fmt: skip
FUZZED = ("branch_on_data", "sdpa_cache_inputs_live")
STRANGE: tuple[object, ...] = (
    None,
    -1,
    0,
    1,
    3,
    256,
    2**31,
    2**63,
    0.5,
    "",
    "nan",
    True,
    [],
    [[]],
    {},
    ["element", 0, [0], True],
    ["sum", 0],
)


def test_bits_are_those_of_the_ordinary_path():
    outcomes = list(compare(of_programs(QUICK)))
    assert {(outcome.kind, outcome.why) for outcome in outcomes} == {("right", "")}
    assert len(outcomes) == len(QUICK) + 1  # one program has two methods
    assert all(outcome.shapes > 1 for outcome in outcomes if not outcome.fixed)


def leaves(data, path=()):
    """The way to whatever is in a document."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, item in inner:
        yield (*path, step)
        yield from leaves(item, (*path, step))


def changed(rng, text, path):
    """The document with one thing replaced by a neighbour of it, or by something strange."""
    document = json.loads(text)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    old = inner[path[-1]]
    near = isinstance(old, int) and not isinstance(old, bool) and rng.random() < 0.6
    inner[path[-1]] = old + rng.choice([-256, -1, 1, 4, 256, 1000]) if near else rng.choice(STRANGE)
    return json.dumps(document)


@pytest.mark.parametrize("name", FUZZED)
def test_whatever_a_changed_plan_does_it_ends_with_an_error_of_ours(name, tmp_path):
    (job,) = of_programs([name])
    assert save(job, tmp_path) is None
    about = json.loads((tmp_path / "job.json").read_text())
    given = [inputs for inputs, _ in calls(tmp_path, about)][:2]
    document = tmp_path / "plan" / "plan.json"
    text = document.read_text()
    rng = random.Random(5)
    paths: dict[tuple[object, ...], list[tuple[object, ...]]] = {}  # by field, so that short ones are seen as often
    for path in leaves(json.loads(text)):
        paths.setdefault(tuple(step for step in path if isinstance(step, str) and not step.isdigit()), []).append(path)
    done = 0
    for field in [*paths] * 8:
        document.write_text(changed(rng, text, rng.choice(paths[field])))
        try:
            with webpte.open_plan(tmp_path / "plan", about["data"]) as plan:
                for inputs in given:
                    plan.method().run(inputs)
            done += 1
        except webpte.Error:
            continue
    assert 0 < done < 4 * len(paths)  # most of it matters


def test_a_second_shape_is_cut_from_the_first():
    (job,) = of_programs(["mixed_kernels"])
    with webpte.load(job.path) as program:
        assert smaller([job.sequences[0][0]], program.method().inputs) is None
    (job,) = of_programs(["llama_4w_emb4"])
    with webpte.load(job.path) as program:
        (first, *_), *_ = job.sequences
        cut = smaller([first], program.method().inputs)
    assert cut is not None and cut[0].shape[1] == first[0].shape[1] - first[0].shape[1] // 2
