"""`webpte doctor` where there is no adapter, and what it makes of a device it is told about."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.harness.children import NO_ADAPTER, run_webpte
from webpte.lowering import ANYWHERE, Context, Variant
from webpte.tools import capabilities, doctor
from webpte.wgsl import Caps


def test_without_an_adapter_it_says_what_to_do():
    done = run_webpte("doctor", environment=NO_ADAPTER)
    assert done.returncode == 1 and not done.stderr
    for text in ("no WebGPU adapter was found", "mesa-vulkan-drivers", "VK_DRIVER_FILES=/nonexistent", "wgpu-native"):
        assert text in done.stdout, done.stdout


def test_features_are_told_with_what_they_change():
    with_f16, without = (
        {f["name"]: f for f in capabilities.features(offered)}["shader-f16"] for offered in ({"shader-f16"}, set())
    )
    assert with_f16["offered"] and not without["offered"]
    assert "two bytes" in with_f16["effect"] and "take four" in without["effect"]


def test_limits_stand_beside_a_browsers():
    told = capabilities.limits(Caps({"max-buffer-size": 5}))
    assert {limit["name"]: (limit["offered"], limit["browser"]) for limit in told}["max-buffer-size"] == (5, 256 << 20)


@pytest.mark.parametrize(("kind", "chosen"), [("cpu", "rows"), ("gpu", "tiles")])
def test_kernels_that_would_be_taken(monkeypatch, kind, chosen):
    """Whatever ops ask `variant` for is listed, with the reason."""
    lower = Context.dispatch

    def choosing(self, *args, **flags):
        rows, tiles = Variant("rows", ANYWHERE, 1), Variant("tiles", ANYWHERE, 8)
        self.variant("linear", (512,), cpu=[rows], gpu=[tiles])
        lower(self, *args, **flags)

    monkeypatch.setattr(Context, "dispatch", choosing)
    told = [v for v in capabilities.variants(Caps(kind=kind)) if v["shape"] == "512"]
    assert [(v["family"], v["chosen"], v["why"]) for v in told] == [
        ("linear", chosen, f"the first choice for a {kind.upper()}")
    ]
    assert told[0]["others"] == ["tiles" if chosen == "rows" else "rows"]


@pytest.mark.parametrize(
    ("code", "out", "error", "problem"),
    [
        (-6, "", "thread panicked\nDevice lost", "the process ended with -6: Device lost"),
        (1, "", "", "the process ended with 1: no message"),
    ],
)
def test_a_driver_that_takes_the_process_with_it(monkeypatch, code, out, error, problem):
    ended = subprocess.CompletedProcess([], code, out, error)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: ended)
    told = doctor.run_self_test()
    assert (told["ok"], told["problem"], told["checks"]) == (False, problem, [])


def test_a_device_that_does_not_answer(monkeypatch):
    def hang(*args, **kwargs):
        raise subprocess.TimeoutExpired([], doctor.TIMEOUT)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not answer" in doctor.run_self_test()["problem"]


def test_json_without_an_adapter():
    done = run_webpte("doctor", "--json", environment=NO_ADAPTER)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and not report["ok"] and report["adapters"] == [] and report["remedies"]
    assert {"webpte", "wgpu", "wgpu-native", "numpy", "python", "os"} <= set(report["versions"])
