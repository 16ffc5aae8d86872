"""`webpte doctor` without an adapter, and its report about a device."""

from __future__ import annotations

import subprocess

import pytest

from webpte.debug import doctor
from webpte.device.adapter import AdapterInfo
from webpte.lowering import ANYWHERE, Context, Variant
from webpte.wgsl import Caps


def test_doctor_features_state_their_effect():
    with_f16, without = (
        {f["name"]: f for f in doctor.features(offered)}["shader-f16"] for offered in ({"shader-f16"}, set())
    )
    assert with_f16["offered"] and not without["offered"]
    assert "two bytes" in with_f16["effect"] and "take four" in without["effect"]


def test_doctor_shows_limits_beside_browser_limits():
    report = doctor.limits(Caps({"max-buffer-size": 5}))
    assert {limit["name"]: (limit["offered"], limit["browser"]) for limit in report}["max-buffer-size"] == (
        5,
        256 << 20,
    )


@pytest.mark.parametrize(("kind", "chosen"), [("cpu", "rows"), ("gpu", "tiles")])
def test_kernels_that_would_be_taken(monkeypatch, kind, chosen):
    """Whatever ops ask `variant` for is listed, with the reason."""
    lower = Context.dispatch

    def choosing(self, *args, **flags):
        rows, tiles = Variant("rows", ANYWHERE, 1), Variant("tiles", ANYWHERE, 8)
        self.variant("linear", (512,), cpu=[rows], gpu=[tiles])
        lower(self, *args, **flags)

    monkeypatch.setattr(Context, "dispatch", choosing)
    report = [v for v in doctor.variants(Caps(kind=kind)) if v["shape"] == "512"]
    assert [(v["family"], v["chosen"], v["why"]) for v in report] == [
        ("linear", chosen, f"the first choice for a {kind.upper()}")
    ]
    assert report[0]["others"] == ["tiles" if chosen == "rows" else "rows"]


@pytest.mark.parametrize(
    ("code", "out", "error", "problem"),
    [
        (-6, "", "thread panicked\nDevice lost", "the process ended with -6: Device lost"),
        (1, "", "", "the process ended with 1: no message"),
    ],
)
def test_self_test_crashing_driver_is_reported(monkeypatch, code, out, error, problem):
    ended = subprocess.CompletedProcess([], code, out, error)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: ended)
    report = doctor.run_self_test()
    assert (report["ok"], report["problem"], report["checks"]) == (False, problem, [])


def test_self_test_hanging_device_is_reported(monkeypatch):
    def hang(*args, **kwargs):
        raise subprocess.TimeoutExpired([], doctor.MAX_SELF_TEST_SECONDS)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not answer" in str(doctor.run_self_test()["problem"])


@pytest.mark.parametrize(("backend", "count"), [("D3D12", 1), ("Vulkan", 0), ("Metal", 0)])
def test_doctor_direct3d_12_states_what_its_compiler_costs(backend, count):
    adapter = AdapterInfo(0, "a GPU", backend, "DiscreteGPU", "a driver", "a vendor", (), {}, chosen=True)
    advice = doctor._advice(adapter, {}, None)
    assert len(advice) == count
    assert all("FXC" in text and "WEBPTE_BACKEND=vulkan" in text and "WEBPTE_DXC" in text for text in advice)
    advice = doctor._advice(adapter, {"WEBPTE_DXC": "dxcompiler.dll"}, None)
    assert len(advice) == count and all("DXC compiles" in text and "FXC" not in text for text in advice)
