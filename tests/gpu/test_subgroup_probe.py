"""The probe of subgroups: its width on each driver, its cache, and devices whose width cannot be known."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from unittest.mock import Mock

import pytest
import wgpu

from tests.support.harness.configurations import CONFIGURATIONS
from webpte.device import adapter, adapter_caps, subgroup_probe
from webpte.device.subgroup_probe import reliable_width, subgroup_width
from webpte.lowering import Requirements
from webpte.wgsl import Caps

PRINT_WIDTH = "from webpte.device import adapter_caps; print(adapter_caps().adapter, adapter_caps().subgroup, sep='|')"


def _fresh(tmp_path) -> dict[str, str]:
    """Empty caches: Mesa's cache of shaders does not know the width that they were compiled for."""
    return {"XDG_CACHE_HOME": str(tmp_path), "MESA_SHADER_CACHE_DISABLE": "true"}


def _caps_elsewhere(tmp_path, **environment: str) -> tuple[str, int]:
    """Return the adapter's name and its width in another process, with empty caches."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_WIDTH],
        env=os.environ | _fresh(tmp_path) | environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    name, width = done.stdout.strip().rsplit("|", 1)
    return name, int(width)


@pytest.mark.parametrize(
    ("measured", "width"),
    [
        ([8] * 384, 8),
        ([32, 32, 64], 4),  # a compiler that chooses: the width of WebGPU's specification remains
        ([32, 16, 8], 4),
        ([], 0),
        ([0, 0], 0),  # a device that does not execute
        ([32, 0], 0),
        ([7, 7], 0),  # not a width that the specification allows
    ],
)
def test_reliable_width_is_the_common_one_or_the_specified_minimum(measured, width):
    assert reliable_width(measured) == width


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_probe_on_lavapipe_gives_the_width_of_its_vectors(bits, tmp_path):
    name, width = _caps_elsewhere(tmp_path, LP_NATIVE_VECTOR_WIDTH=str(bits), **CONFIGURATIONS["usual"].environment)
    if not re.search(rf"llvmpipe .*\b{bits} bits", name):
        pytest.skip(f"not lavapipe but {name}")
    assert width == bits // 32


def test_probe_on_swiftshader_gives_four(tmp_path):
    configuration = CONFIGURATIONS["swiftshader"]
    if configuration.missing:
        pytest.skip(configuration.missing)
    name, width = _caps_elsewhere(tmp_path, **configuration.environment)
    assert "SwiftShader" in name
    assert width == 4


def test_width_is_measured_once_per_adapter_and_driver(tmp_path, monkeypatch, device):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measure = Mock(side_effect=subgroup_probe._measure)
    monkeypatch.setattr(subgroup_probe, "_measure", measure)
    chosen = adapter.chosen_adapter()
    if "subgroup" not in chosen.features:
        pytest.skip("the adapter has no subgroups")
    widths = [subgroup_width(chosen), subgroup_width(chosen)]
    assert measure.call_count == 1
    assert widths[0] == widths[1] == adapter._subgroup_width(chosen) > 0
    monkeypatch.setattr(wgpu, "__version__", "another")
    assert subgroup_width(chosen) == widths[0]
    assert measure.call_count == 2


def test_device_that_fails_has_no_width(caplog):
    class Adapter:
        def request_device_sync(self, **_: object) -> object:
            raise RuntimeError("out of devices")

    assert subgroup_probe._measure(Adapter()) == []
    assert "out of devices" in caplog.text


def test_unknown_width_meets_no_requirement_of_subgroups():
    unknown = Caps(features=frozenset({"subgroup"}), kind="gpu", subgroup=0)
    assert not any(Requirements(subgroup=width).met(unknown) for width in subgroup_probe.WIDTHS)


@pytest.mark.parametrize(
    ("name", "known", "expected"), [("subgroup-4", 8, 4), ("subgroup-32", 8, 8), ("subgroup-32", 0, 32)]
)
def test_restriction_lowers_a_known_width_and_sets_an_unknown_one(name, known, expected):
    caps = Caps(features=frozenset({"subgroup"}), subgroup=known)
    assert adapter.RESTRICTIONS[name](caps).subgroup == expected
    assert adapter.RESTRICTIONS[name](dataclasses.replace(caps, features=frozenset(), subgroup=0)).subgroup == 0


def test_caps_have_the_measured_width(device):
    caps = adapter_caps()
    if "subgroup" in caps.features and not os.environ.get(adapter.RESTRICTIONS_VARIABLE):
        assert caps.subgroup == adapter._subgroup_width(adapter.chosen_adapter())


@pytest.mark.slow
@pytest.mark.parametrize("bits", [128, 512])
def test_kernels_that_share_values_are_right_at_other_widths(bits, tmp_path):
    """Subgroups of 4 and 16: a case of each kernel that relies on the width, in a process with other vectors."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--one-case-per-file", "-k", "broadcast", "tests/gpu/test_cases.py"],
        env=os.environ | _fresh(tmp_path) | {"LP_NATIVE_VECTOR_WIDTH": str(bits)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert " passed" in done.stdout
