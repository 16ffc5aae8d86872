"""State as people write it: 20 calls equal to eager, also after a reset, in a fork, from a snapshot elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

import webpte
from tests.support.harness.cases import assert_close
from tests.support.harness.children import run_python
from tests.support.models.state_forms import FORMS, LOST, REFUSED, export_form, refusal
from webpte.debug.check import check_file

CLOSE = 1e-5
MIDDLE = 10
SEVERAL = ("methods_that_share",)
ALONE = [name for name in FORMS if name not in SEVERAL]


def check(results, step, where):
    for got, want in zip(results, step.outputs, strict=True):
        assert np.asarray(got).dtype == want.dtype, where
        assert_close(np.asarray(got), want, CLOSE, CLOSE, where)


def run(program, steps, where):
    for number, step in enumerate(steps):
        check(program.method(step.method).run(step.inputs), step, f"{where}, call {number}")


def test_state_forms_are_many_and_distinct():
    assert len(FORMS) >= 40 and not {*FORMS} & {*REFUSED, *LOST}


@pytest.mark.parametrize("name", FORMS)
def test_equals_eager_and_after_a_reset_again(name):
    exported = export_form(name)
    assert refusal(exported) is None
    assert check_file(exported.path)["ok"]
    steps = exported.steps
    assert len(steps) == 20
    with webpte.load(exported.path) as program:
        run(program, steps, name)
        for used in {step.method for step in steps}:
            program.method(used).reset()
        run(program, steps[:MIDDLE], f"{name} after reset")
        if name not in SEVERAL:
            method = program.method()
            fork = method.fork()
            for other in (fork, method):  # were the state theirs together, the second would be ahead
                for number, step in enumerate(steps[MIDDLE:]):
                    check(other.run(step.inputs), step, f"{name} forked, call {MIDDLE + number}")


CHILD = """
import json, sys
import numpy as np
import webpte

worst = {}
for name, path, snapshot, goldens in json.loads(sys.argv[1]):
    arrays = np.load(goldens)
    with webpte.load(path) as program:
        method = program.method()
        method.restore(snapshot)
        errors = [0.0]
        for number in range(int(sys.argv[2]), 20):
            slots = [key for key in arrays.files if key.startswith(f"0.{number}.forward.")]
            inputs = [arrays[f"0.{number}.forward.in{i}"] for i in range(sum(".in" in key for key in slots))]
            for i, got in enumerate(method.run(inputs)):
                want = arrays[f"0.{number}.forward.out{i}"].astype(np.float64)
                close = np.abs(np.asarray(got, np.float64) - want) / np.maximum(1, np.abs(want))
                errors.append(float(close.max()) if got.shape == want.shape else np.inf)
        worst[name] = max(errors)
print(json.dumps(worst))
"""


@pytest.mark.slow
def test_snapshots_continue_in_another_process(tmp_path):
    jobs = []
    for name in ALONE:
        exported = export_form(name)
        with webpte.load(exported.path) as program:
            run(program, exported.steps[:MIDDLE], name)
            program.method().snapshot(tmp_path / name)
        jobs.append((name, str(exported.path), str(tmp_path / name), str(exported.folder / "goldens.npz")))
    worst = json.loads(run_python(CHILD, json.dumps(jobs), MIDDLE).splitlines()[-1])
    assert [(name, error) for name, error in worst.items() if error > CLOSE] == []
    assert len(worst) == len(ALONE)


@pytest.mark.parametrize("name", REFUSED)
def test_state_form_refused_by_exporter(name):
    """If this fails the exporter has learnt it: it belongs among the forms."""
    said = refusal(export_form(name))
    assert said is not None and REFUSED[name] in said


@pytest.mark.parametrize("name", LOST)
def test_state_form_lost_by_exporter_raises(name):
    """The file does not say what was meant: it is refused where that can be reported, and no one could run it right."""
    exported = export_form(name)
    assert refusal(exported) is None
    with pytest.raises((webpte.Error, AssertionError), match=LOST[name]), webpte.load(exported.path) as program:
        run(program, exported.steps, name)
