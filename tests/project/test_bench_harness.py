"""The bench: its bare kernels compute the right thing, and its harness believes no one.

This file is also a contender, `python -m tests.project.test_bench_harness NAME`, that behaves as the row's name says.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from bench import documentation, measure, rows
from bench.bare.contender import JOBS
from bench.bare.engine import Engine
from bench.bare.variants import TOLERANCE, calibrate, right
from bench.goals import UNIT, goals, units
from bench.models import forward
from bench.plot import draw
from bench.problems import Problem
from bench.protocol import Prepared, RefusedError, serve
from bench.reference import Reference
from bench.results import Report, Result
from bench.rows import Row
from bench.tables import grid, to_markdown
from bench.workers import ENVIRONMENTS, Environment, Worker, WorkerError
from tests.support.harness.gate import slow_but, slow_rows_but

pytestmark = pytest.mark.gpu  # it runs kernels
MODULE = "tests.project.test_bench_harness"
TINY = {
    "layers": 2, "heads": 4, "kv_heads": 2, "width": 32, "dim": 128, "hidden": 192, "vocab": 256,
    "context": 16, "eps": 1e-5, "theta": 10000.0,
}  # fmt: skip


# Deep enough that no compiler unrolls a loop over them: that would take minutes.
PROBLEMS = {
    "add": rows.add(64, 64),
    "gemv": rows.linear(1, 128, 1024),
    "gemm": rows.linear(32, 128, 1024),
    "chain": rows.chain(6),
    "q4_gemv": rows.q4_linear(1, 128, 2048),
    "q4_gemm": rows.q4_linear(32, 64, 2048),
    "q4_stack": lambda: rows.matmuls(rows.llama_weights(TINY), TINY),
    "attention": rows.attention(13, heads=6, kv_heads=2, width=64, rows=29, layers=2),
    "long attention": rows.attention(151, heads=4, kv_heads=4, width=32, rows=160, layers=1),
    "upload": rows.upload(3 << 20),
}


@pytest.fixture(scope="module")
def engine():
    return Engine()


class TestBareKernels:
    """Each variant of each job at the smallest size all of them take."""

    @pytest.mark.parametrize("name", slow_but(["add"], PROBLEMS))
    def test_bench_variants_compute_correct_results(self, engine, name):
        problem = PROBLEMS[name]()
        variants = JOBS[problem.kind](engine, problem)
        assert len(variants) >= 6 and len({variant.name for variant in variants}) == len(variants)
        errors = {variant.name: problem.error(variant.run()) for variant in variants}
        if "llvmpipe" in engine.info["device"]:  # elsewhere a subgroup may not have 8 lanes
            assert not {name: error for name, error in errors.items() if not error <= TOLERANCE}
        assert right(variants, problem)

    def test_bench_wrong_variant_is_excluded(self, engine):
        problem = PROBLEMS["add"]()
        variants = JOBS["add"](engine, problem)
        liar = replace(variants[0], name="liar", run=lambda: [problem.expected[0] * 1.01])
        assert [variant.name for variant in right([liar, variants[1]], problem)] == [variants[1].name]

    def test_calibration_times_all(self, engine):
        problem = PROBLEMS["chain"]()
        variants = JOBS["chain"](engine, problem)
        seconds = calibrate(variants, rounds=2)
        assert list(seconds) == [variant.name for variant in variants] and min(seconds.values()) > 0


class TestReference:
    def test_decoding_continues_prefill(self):
        weights = rows.llama_weights(TINY)
        behind = rows.decoder(weights, dict(TINY), past=6, tokens=1)
        whole = rows.decoder(weights, dict(TINY), past=0, tokens=7)
        ids = np.concatenate([behind.inputs["prompt"], behind.inputs["ids"]], 1)
        np.testing.assert_array_equal(ids, whole.inputs["ids"])
        assert behind.error(list(whole.expected)) < 1e-5

    def test_bench_decoder_is_causal(self):
        problem = rows.decoder(rows.llama_weights(TINY), dict(TINY), past=0, tokens=5)
        reference = Reference(problem.weights)
        changed = {"ids": problem.inputs["ids"].copy()}
        changed["ids"][0, -1] += 1
        forward(reference, problem, problem.inputs)
        forward(reference, problem, changed)
        first, second = reference.keys[1], reference.keys[3]  # of the second layer, in both runs
        np.testing.assert_array_equal(first[:-1], second[:-1])
        assert (first[-1] != second[-1]).any()

    def test_nan_and_wrong_shapes_are_never_right(self):
        problem = rows.add(4, 4)()
        assert problem.error([problem.expected[0]]) == 0
        assert problem.error([np.full((4, 4), np.nan)]) == float("inf")
        assert problem.error([problem.expected[0][:3]]) == float("inf")
        assert problem.error([]) == float("inf")


# ---------------------------------------------------------------- contenders of all sorts


class Actor:
    """Behaves as the row's name says."""

    def __init__(self) -> None:
        self.about = {"version": "1"}

    def prepare(self, row: str, problem: Problem) -> Prepared:
        print("libraries print what they like, also here")
        if row == "refuses":
            raise RefusedError("not today")
        if row == "raises":
            raise ValueError("first line\nsecond line")
        if row == "dies":
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        factor = {"wrong": 1.01, "nan": np.nan}.get(row, 1.0)
        calls = [0]

        def run() -> list[np.ndarray]:
            calls[0] += 1
            if row == "fails later" and calls[0] > 2:
                raise ValueError("tired")
            with open(os.environ["BENCH_TEST_LOG"], "a", encoding="utf-8") as log:
                log.write(sys.argv[1])
            time.sleep(0.02)
            return [problem.expected[0] * factor]

        return Prepared(run, {"note": "an actor"})


if __name__ == "__main__":
    serve(Actor)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def actors(log):
    created = {
        name: Worker(Environment(name, MODULE, (name,), variables={"BENCH_TEST_LOG": str(log)})) for name in "AB"
    }
    yield created
    for worker in created.values():
        worker.stop()


def take_turns(actors, tmp_path, monkeypatch, name, repeat=3):
    monkeypatch.setattr(rows, "cache_root", lambda: tmp_path)
    row = Row(name, name, rows.add(4, 4))
    seats = {actor: measure.Seat(worker, row) for actor, worker in actors.items()}
    return measure.measure(name, seats, repeat, lambda text: None)


WRONG = ("wrong", pytest.approx(0.01, rel=1e-3))
CANNOT = [
    ("dies", "its process ended with 3: last words"),
    ("refuses", "not today"),
    ("raises", "ValueError: first line"),
    ("fails later", "it failed while it was timed"),
]


class TestHarness:
    def test_contenders_take_turns(self, actors, log, tmp_path, monkeypatch):
        results = take_turns(actors, tmp_path, monkeypatch, "right")
        assert log.read_text() == "AB" + 3 * "AB"  # once each to be checked, then what counts
        for result in results.values():
            assert (result.cannot, result.error, result.wrong, result.runs) == (None, 0, False, 3)
            assert 0.02 <= result.quartiles[0] <= result.seconds <= result.quartiles[1]
            assert result.about == {"note": "an actor"}

    @pytest.mark.parametrize(("name", "error"), [WRONG, pytest.param("nan", float("inf"), marks=pytest.mark.slow)])
    def test_wrong_results_are_marked(self, actors, tmp_path, monkeypatch, name, error):
        result = take_turns(actors, tmp_path, monkeypatch, name, repeat=1)["A"]
        assert result.wrong and result.error == error and result.seconds is not None

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "reason"), slow_rows_but(CANNOT[:1], CANNOT))
    def test_bench_failing_contender_states_reason_and_stays(self, actors, tmp_path, monkeypatch, name, reason):
        result = take_turns(actors, tmp_path, monkeypatch, name)["A"]
        assert result.cannot == reason and result.seconds is None
        assert take_turns(actors, tmp_path, monkeypatch, "right", repeat=1)["A"].cannot is None

    def test_bench_worker_timeout_raises(self, actors):
        with pytest.raises(WorkerError, match=r"no answer to about in 0 s"):
            actors["A"].ask(0.01, do="about")

    @pytest.mark.slow
    def test_slow_contenders_are_asked_less_often(self, actors, tmp_path, monkeypatch):
        monkeypatch.setattr(measure, "LONG_SECONDS", 0.01)
        results = take_turns(actors, tmp_path, monkeypatch, "right", repeat=measure.LEAST_RUNS + 3)
        assert {result.runs for result in results.values()} == {measure.LEAST_RUNS}

    def test_bench_missing_package_names_setup_command(self, tmp_path, monkeypatch):
        monkeypatch.setattr("bench.workers.cache_root", lambda: tmp_path / "bench")
        worker = Worker(ENVIRONMENTS["tinygrad"])
        results = take_turns({"tinygrad": worker}, tmp_path, monkeypatch, "right")
        assert "python -m bench.setup" in results["tinygrad"].cannot
        worker.stop()


# ---------------------------------------------------------------- results


def result(seconds, **more):
    return Result(seconds=seconds, quartiles=(seconds, seconds), runs=15, error=1e-7, **more)


@pytest.fixture
def report():
    facts = {"adapter": "llvmpipe (Vulkan)", "driver": "Mesa 25", "machine": "2 cores", "python": "3.11"}
    created = Report({**facts, "versions": {"LiteRT": "version 2.3.0"}}, {})
    created.rows["gemv_4096"] = {
        "webpte": result(0.011),
        "bare engine": result(0.010, about={"variant": "4 rows"}),
        "ONNX Runtime": result(0.001, wrong=True),
        "LiteRT": result(0.022, about={"note": "f32 weights"}),
        "tinygrad": Result(cannot="no kernel"),
    }
    created.dates["gemv_4096"] = "2026-11-15T06:00:00+00:00"
    return created


class TestResults:
    def test_json_keeps_everything(self, report, tmp_path):
        report.save(tmp_path / "r.json")
        again = Report.read(tmp_path / "r.json")
        assert (again.facts, again.rows, again.dates) == (report.facts, report.rows, report.dates)

    def test_merging_replaces_whole_rows(self, report):
        newer = Report({**report.facts, "driver": "Mesa 26"}, {"gemv_4096": {"webpte": result(1.0)}, "add_small": {}})
        merged = report.merged(newer)
        assert merged.rows == {"gemv_4096": {"webpte": result(1.0)}, "add_small": {}}
        assert merged.facts["driver"] == "Mesa 26"

    def test_bench_wrong_result_is_not_best(self, report):
        assert report.best_peer("gemv_4096", ["ONNX Runtime", "LiteRT", "tinygrad"]) == 0.022

    def test_goals_are_ratios_to_other_rows(self, report):
        results = {goal.title: goal for goal in goals(report)}
        assert results["fp32 GEMV 4096² / bare engine"].ratio == pytest.approx(1.1)
        assert results["fp32 GEMV 4096² / bare engine"].reached is True
        assert results["fp32 GEMV 4096² / best peer"].ratio == pytest.approx(0.5)
        assert results["add 8×8 / best peer"].reached is None

    def test_units(self):
        seats = {
            "llama256_decode": ("webpte", 0.003), "smollm2_decode_100": ("webpte", 0.040),
            "smollm2_decode_900": ("webpte", 0.060), "smollm2_matmuls": ("bare engine", 0.032),
            "attention_100": ("bare engine", 0.002), "attention_900": ("bare engine", 0.018),
        }  # fmt: skip
        measured = {row: {who: result(seconds), UNIT: result(0.010)} for row, (who, seconds) in seats.items()}
        results = {goal.title: goal.ratio for goal in units(Report({}, measured))}
        assert results["llama256 q4, decode, in GEMVs"] == pytest.approx(0.3)
        assert results["SmolLM2 decode at 100 / its matrices run bare"] == pytest.approx(1.25)
        assert results["SmolLM2 decode, slope over context / bare attention's"] == pytest.approx(20 / 16)
        assert results["SmolLM2 q4, prefill 32, in GEMVs"] is None

    def test_table(self, report):
        table = grid(report)
        (cells,) = table.rows
        assert cells[:2] == ["fp32 GEMV 4096²", "11"]
        assert "(1) [1]" in cells and "22 [2]" in cells and "– [3]" in cells
        assert cells[-2:] == ["1.10", "0.50"]
        assert table.notes[1:] == ["LiteRT: f32 weights", "tinygrad: no kernel"]
        assert to_markdown(table).count("\n") == 2

    def test_page(self, report):
        page = documentation.markdown(report)
        for part in ("lavapipe, which is a CPU", "Mesa 25", "version 2.3.0", "2026-11-15", "[3] tinygrad: no kernel"):
            assert part in page
        report.facts["adapter"] = "a real one"
        assert "lavapipe, which" not in documentation.markdown(report)

    def test_bench_draw_writes_png(self, report, tmp_path):
        pytest.importorskip("matplotlib")
        draw(report, tmp_path / "p.png")
        assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")

    def test_bench_page_shows_stored_results(self):
        stored = {name: documentation.STORED.with_name(f"{name}.json") for name in ("results", "units")}
        if not stored["results"].exists():
            pytest.skip("nothing was stored yet")
        units_found = Report.read(stored["units"]) if stored["units"].exists() else None
        page = (documentation.DOCS / "benchmarks.md").read_text(encoding="utf-8")
        assert documentation.markdown(Report.read(stored["results"]), units_found).strip() in page
