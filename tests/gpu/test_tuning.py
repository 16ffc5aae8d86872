"""Choosing among kernels by measurement, and remembering the choice."""

from __future__ import annotations

import importlib.util
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte.cli import main
from webpte.container import DType, VkTensor
from webpte.lowering import TuningKey, unregister
from webpte.measure.tune import machine_load
from webpte.runtime import TunedKernel, tuning, tuning_cache_path
from webpte.runtime.tuning import best_variants

PYTHON = """
from webpte.lowering import ANYWHERE, FLOATS, Context, Tensor, Variant, op
from webpte.wgsl import Uniforms, u32


VARIANTS = (Variant("slow", ANYWHERE, 20000), Variant("fast", ANYWHERE, 1))


class Rounds(Uniforms):
    rounds: u32


@op("toy.double.default", dtypes=FLOATS)
def double(cx: Context, x: Tensor, *, out: Tensor) -> None:
    out.dims = x.dims
    rounds = cx.variant("double", (x.numel,), cpu=VARIANTS, gpu=VARIANTS).config
    cx.dispatch("double.wgsl", reads={"x": x}, writes={"y": out}, params=Rounds(rounds=rounds), threads=x.numel)
"""
WGSL = """{$ include "kernel.wgsl" $}

var<storage> x: array<f32>;
var<storage> y: array<f32>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < p.rounds; k++) {
        sum = x[i] + 0.5 * sum;
    }
    y[i] = f32(p.rounds) + min(sum, 0.0);
}
"""


@pytest.fixture
def path(tmp_path, monkeypatch, device):
    """forward(x) says how many rounds its kernel made: 20000 unless the fast one was chosen."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "double.py").write_text(PYTHON)
    (tmp_path / "double.wgsl").write_text(WGSL)
    spec = importlib.util.spec_from_file_location("double", tmp_path / "double.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    values = [VkTensor(DType.FLOAT32, (50,)), VkTensor(DType.FLOAT32, (50,))]
    simple_pte(tmp_path / "p.pte", values, [("toy.double.default", (0, 1))], [0], [1])
    yield tmp_path / "p.pte"
    unregister(module.double)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Kernels are run and timed, but how long they are said to take is not the machine's: a second for each round."""
    created = tuning._trial

    def trial(job, name, *arguments):
        result = created(job, name, *arguments)
        assert result is not None
        timed = result.seconds
        said = {"slow": 20000.0, "fast": 1.0}[name]
        monkeypatch.setattr(result, "seconds", lambda: said if timed() > 0 else 0.0)
        return result

    monkeypatch.setattr(tuning, "_trial", trial)


def rounds(path, **options):
    with webpte.load(path, **options) as program:
        return float(program.method()(np.zeros(50, np.float32))[0])


def test_tune_fastest_is_chosen_and_cached(path):
    assert rounds(path) == 20000
    with webpte.load(path) as program:
        (choice,) = program.tune()
        assert choice.best == "fast" and choice.seconds == {"fast": 1, "slow": 20000}
        assert program.tune() == []  # known by now
        assert len(program.tune(again=True)) == 1
    assert rounds(path) == 1
    assert rounds(path, tune="off") == 20000
    ((device, choices),) = json.loads(tuning_cache_path().read_text()).items()
    assert webpte.__version__ in device and choices == {"double 50": "fast"}


def test_auto_tunes_at_load(path):
    assert rounds(path, tune="auto") == 1
    with raises(webpte.InputError, "tune", "'cached', 'auto', 'off'", "'always'"):
        webpte.load(path, tune="always")  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["", "[]", '{"x": 3}', "{broken"])
def test_tune_damaged_cache_is_ignored(path, content):
    tuning_cache_path().parent.mkdir(parents=True)
    tuning_cache_path().write_text(content)
    assert rounds(path) == 20000
    assert rounds(path, tune="auto") == 1


def test_tune_command_reports_and_forces(path, capsys):
    assert main(["tune", str(path), "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"], job["best"], job["default"]) == ("double 50", "fast", "slow") and job["gain"] > 3
    assert main(["tune", str(path)]) == 0
    assert "measured before" in capsys.readouterr().out
    assert main(["tune", str(path), "--force"]) == 0
    assert "double 50" in capsys.readouterr().out


def choice(**rounds):
    return TunedKernel(
        TuningKey("double", (50,), tuple(rounds)), 1, {name: tuple(times) for name, times in rounds.items()}
    )


NOISY = [1.0, 1.3, 0.9, 1.1, 1.0, 1.2, 1.0]


@pytest.mark.parametrize(("usual", "other", "best"), [
    ([1.0] * 7, [0.5] * 7, "other"),
    ([1.0] * 7, [0.99] * 7, "usual"),  # always faster, and not enough to be seen
    ([1.0] * 7, [0.8] * 6 + [1.01], "other"),  # once something came between
    ([1.0] * 7, [0.8] * 5 + [1.01] * 2, "usual"),  # twice it was not
    ([1.0] * 7, [0.3] * 4 + [9.0] * 3, "other"),  # no noise makes it three times as fast in most rounds
    (NOISY, [time * 0.94 for time in NOISY], "other"),  # what slows one round slows both
    (NOISY, NOISY[::-1], "usual"),
    ([1.0] * 7, [2.0] * 7, "usual"),
])  # fmt: skip
def test_tune_only_clear_gain_replaces_default(usual, other, best):
    result = choice(usual=usual, other=other)
    assert result.best == best
    assert result.gain == pytest.approx(1.0) if best == "usual" else result.gain > 1.05
    assert best_variants([result]) == {result.job.key: best}


def test_tune_budget_exhausted_is_reported(path, capsys):
    with webpte.load(path) as program:
        result = program.tune(budget=1e-9)
    assert result == [] and [job.key for job in result.unmeasured] == ["double 50"]
    assert main(["tune", str(path), "--seconds", "1e-9"]) == 0
    assert "no time left for 1 job (forward: double 50)" in capsys.readouterr().out


@pytest.mark.parametrize(("second", "best"), [([0.5] * 7, "other"), ([1.1] * 7, "usual")])
def test_tune_winner_requires_confirmation(second, best, monkeypatch):
    job = TuningKey("double", (50,), ("usual", "other"))
    measured = iter([[0.5] * 7, second])
    monkeypatch.setattr(tuning, "_measure", lambda *_: {"usual": (1.0,) * 7, "other": tuple(next(measured))})
    planner = SimpleNamespace(examples={job: SimpleNamespace(uses=1)})
    (result,) = tuning.tune_plan(planner, None, None)  # type: ignore[arg-type]
    assert result.fastest == "other" and result.best == best and next(measured, None) is None


@pytest.mark.parametrize(("load", "busy"), [(0.3, None), (7.5, "load average 7.5 on 2 cores")])
def test_tune_busy_machine_is_reported(load, busy, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))
    assert machine_load() == busy
