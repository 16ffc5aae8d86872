"""Random modules through the real exporter, against eager: a few here, many by `python -m tests.studies
random_modules`."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.studies.random_modules.exporting import export, program_of
from tests.studies.random_modules.maker import make_program
from tests.studies.random_modules.module import answers
from tests.studies.random_modules.program import Input, Kind, Method, Program, Statement
from tests.studies.random_modules.running import FINDINGS, NOT_EXPORTED, REFUSED, RIGHT, Outcome, difference, run_folder
from tests.studies.random_modules.workers import Worker
from tests.support.harness.gate import slow_but

SEEDS = range(12)
QUICK = range(4)
# What random modules have found, made small; a file is named for what was wrong.
FOUND = sorted((Path(__file__).parents[1] / "studies" / "random_modules" / "found").glob("*.json"))


@functools.cache
def generated(seed: int) -> Program:
    return make_program(seed)


@functools.cache
def outcome_of(seed: int) -> Outcome:
    return run_folder(export(program_of(seed)))


@pytest.mark.parametrize("seed", slow_but(QUICK, SEEDS))
def test_random_module_equals_eager_or_is_refused(seed):
    outcome = outcome_of(seed)
    assert outcome.kind not in FINDINGS, f"{outcome.detail}\n{program_of(seed).to_python()}"


@pytest.mark.parametrize("seeds", slow_but([QUICK], [QUICK, SEEDS]), ids=len)
def test_random_modules_mostly_run_and_equal(seeds):
    kinds = [outcome_of(seed).kind for seed in seeds]
    assert kinds.count(RIGHT) >= len(kinds) * 3 // 4


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_random_module_regressions_equal_or_refused(path):
    program = Program.from_json(path.read_text())
    outcome = run_folder(export(program))
    assert outcome.kind in (RIGHT, REFUSED), f"{outcome.detail}\n{program.to_python()}"


def test_random_module_seed_is_deterministic():
    for seed in range(40, 44):
        again = make_program(seed)
        assert again == generated(seed) and Program.from_json(again.to_json()) == again
        for name in again.methods:
            for first, second in zip(answers(generated(seed), name), answers(again, name), strict=True):
                for a, b in zip(first, second, strict=True):
                    assert difference(tuple(a.outputs), b.outputs, [np.zeros(o.shape) for o in b.outputs]) == ""


@pytest.mark.slow
def test_programs_differ_and_cover_what_they_should():
    programs = [generated(seed) for seed in range(200, 260)]
    assert len({p.methods["forward"].statements[0].code for p in programs}) > 30
    methods = [m for p in programs for m in p.methods.values()]
    assert any(m.buffers for m in methods) and any(s.branches for m in methods for s in m.statements)
    assert {len(p.symbols) for p in programs} >= {0, 1, 2} and any(p.lowering.blocklist for p in programs)
    assert {i.dtype for m in methods for i in m.inputs} >= {"float32", "float16", "int64", "bool"}
    for p in programs:
        assert len(p.calls) == 4
        assert all(low <= at[s] <= high for s, (low, high) in p.symbols.items() for at in p.calls)


@pytest.mark.slow
def test_random_module_small_error_is_detected():
    """The tolerance follows from how much noise moves a result, so it is not so wide that nothing could fail."""
    seen = total = 0
    for seed in range(60, 90):
        program = generated(seed)
        half = program.lowering.force_fp16 or any(i.dtype == "float16" for i in program.methods["forward"].inputs)
        answer = answers(program, "forward")[0][0]
        wide = [o for o in answer.outputs if o.dtype == np.float32 and np.abs(o).max() > 0.1]
        if half or not wide:
            continue
        total += 1
        off = tuple(o * np.float32(1.001) if o.dtype == np.float32 else o for o in answer.outputs)
        seen += "differ" in difference(off, answer.outputs, answer.tolerances)
    assert total > 10 and seen >= 0.9 * total


def one_statement(code: str) -> Program:
    method = Method([Input("x0", "float32", [5, 3])], {}, [], [Statement(["v1"], code, ["x0"])], ["v1"])
    method.kinds["v1"] = Kind("float32", [5, 3])
    return Program(0, calls=[{}], methods={"forward": method})


def test_noise_excludes_comparisons_that_rounding_decides():
    """A comparison that rounding decides is not compared; all others are."""
    program = one_statement("{0} * 3")
    program.methods["forward"].statements += [
        Statement(["v2"], "{0} / 3", ["v1"]),
        Statement(["v3"], "{0} >= {1}", ["v2", "x0"]),
    ]
    program.methods["forward"].outputs = ["v3"]
    ((answer,),) = answers(program, "forward")
    assert np.isinf(answer.tolerances[0]).mean() > 0.5
    ((answer,),) = answers(one_statement("{0} >= 0"), "forward")
    assert not answer.tolerances[0].any()


def test_random_module_exporter_refusal_is_reported(tmp_path):
    choice_on_data = one_statement("{0} * int({0}.sum() > 0)")
    outcome = run_folder(export(choice_on_data, tmp_path / "made"))
    assert outcome.kind == NOT_EXPORTED and "data" in outcome.detail


def test_random_module_worker_crash_is_reported_and_replaced():
    worker = Worker()
    try:
        worker.start().kill()
        died = worker.seed(SEEDS[0])
        assert died.kind == NOT_EXPORTED and "ended with -9" in died.detail
        assert worker.seed(SEEDS[0]) == outcome_of(SEEDS[0])
    finally:
        worker.close()
