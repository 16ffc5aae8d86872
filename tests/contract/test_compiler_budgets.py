"""Real GPU compilers must not need more registers or instructions for the kernels than recorded.

`python -m bench.compilers --record` records the figures of today, if they are meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.compilers import budgets, build, drivers
from bench.compilers.programs import multiply_adds, phases, program_path
from bench.compilers.report import KernelReport, measure
from webpte.wgsl import Kernel, render

CI = os.environ.get("CI", "").lower() in {"1", "true"}


def usable(names: Sequence[str], *targets: str) -> list[drivers.Device]:
    """Return devices. With CI=true, build what their compilers lack; else skip the test if they lack anything."""
    devices = budgets.devices_of(names)
    if CI:
        for target in targets:
            build.build(target)
    missing = [f"{device.name}: {reason}" for device in devices if (reason := drivers.missing(device))]
    if missing and CI:
        pytest.fail("; ".join(missing))
    if missing:
        pytest.skip("; ".join(missing))
    return devices


@pytest.fixture(scope="module")
def devices():
    """Return the GPUs of the gate. What the compiler for Intel's lacks is built in a minute, once."""
    return usable(budgets.GATE_DEVICES, "intel")


@pytest.fixture(scope="module")
def night_devices():
    """Return the GPUs of the nightly run. What their compilers lack is built in three minutes, once."""
    return usable(budgets.NIGHT_DEVICES, "apple", "nvidia")


def assert_within_budgets(name: str, devices: Sequence[drivers.Device]) -> None:
    over = list(budgets.compare(measure(name, devices), budgets.read()))
    assert not over, "if this is meant: python -m bench.compilers --record\n" + "\n".join(over)


@pytest.mark.parametrize("name", budgets.PROGRAMS)
def test_kernels_are_within_their_budgets(devices, name):
    assert_within_budgets(name, devices)


@pytest.mark.slow
@pytest.mark.parametrize("name", budgets.PROGRAMS)
def test_kernels_apple_and_nvidia_are_within_their_budgets(night_devices, name):
    assert_within_budgets(name, night_devices)


@pytest.mark.parametrize("name", budgets.PROGRAMS)
def test_budgets_all_devices_are_recorded(name):
    assert set(budgets.read()[name]) == {*budgets.GATE_DEVICES, *budgets.NIGHT_DEVICES}


def test_budgets_have_no_spills():
    for kernels in budgets.read().values():
        for device, limits in kernels.items():
            assert [name for name, figures in limits.items() if figures["spills"]] == [], device


@pytest.fixture(scope="module")
def decode_kernel(devices):
    """Return the 4-bit matrix times a vector that a decode step of llama256 runs most."""
    uses = phases("llama256", program_path("llama256"), drivers.caps(devices[0])).uses
    kernels = [kernel for kernel in uses if "decode" in uses[kernel] and dict(kernel.flags).get("bits") == 4]
    return max(kernels, key=lambda kernel: uses[kernel]["decode"].workgroups)


def with_flags(kernel: Kernel, **changes: object) -> Kernel:
    return replace(kernel, flags=tuple(sorted({**dict(kernel.flags), **changes}.items())))


def excess(device: drivers.Device, kernel: Kernel, planted: Kernel, text: str | None = None) -> str:
    """Return what the budget of `kernel` says about a kernel with a planted regression, or about its modified text."""
    sources = [drivers.Source.of(kernel), drivers.Source.of(planted)]
    if text is not None:
        sources[1] = replace(sources[1], text=text)
    figures = drivers.compile_all(device, sources)
    limits = [
        budgets.limits(KernelReport(k.label, k.workgroup, multiply_adds(k), {}, {device.name: f}), device.name)
        for k, f in zip((kernel, planted), figures, strict=True)
    ]
    return "; ".join(budgets.excess(limits[1], limits[0]))


def test_compiler_budget_spill_exceeds_it(devices, decode_kernel):
    """A tile of 12 by 8 for two weights has more sums than an invocation has registers."""
    huge = with_flags(decode_kernel, tile=12, columns=8, aligned=False)
    for device in devices:
        assert re.search(r"spills [1-9]", excess(device, decode_kernel, huge)), device.name


def test_compiler_budget_clamped_loads_exceed_it(devices, decode_kernel):
    loads = re.compile(r"\b(x|weight\d|scales\d)\[([^\]]*)\]")
    text, count = loads.subn(r"\1[min(\2, p.columns * p.row_loads - 1u)]", render(decode_kernel))
    assert count >= 8
    for device in devices:
        assert "per_multiply_add" in excess(device, decode_kernel, decode_kernel, text), device.name


def test_half_a_tile_is_over_the_budget(devices, decode_kernel):
    half = with_flags(decode_kernel, columns=dict(decode_kernel.flags)["columns"] // 2, aligned=False)
    for device in devices:
        assert "per_multiply_add" in excess(device, decode_kernel, half), device.name


def test_compiler_budget_same_kernel_is_within(devices, decode_kernel):
    for device in devices:
        assert excess(device, decode_kernel, decode_kernel) == ""


def test_quantized_matrix_kernels_have_their_work_in_the_table(devices):
    """Per multiply-add is what a larger tile may not change: each 4-bit kernel of the main programs needs a count."""
    for name in budgets.PROGRAMS:
        for kernel in phases(name, program_path(name), drivers.caps(devices[0])).uses:
            if kernel.template.startswith("q4/linear_q4") and "pack" not in kernel.template:
                assert multiply_adds(kernel), kernel.label
