"""Every kernel that the cases reach compiles under naga, which wgpu uses, and under Tint, which browsers use."""

from __future__ import annotations

import functools

import pytest

from tests.support.harness.cases import planned_cases, planned_kernels
from tests.support.harness.gate import slow_but
from webpte.wgsl import Caps, Kernel, Uniforms, home_of, render


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Those of a device that offers all we use, and what halves are given where shaders have none."""
    folder = tmp_path_factory.mktemp("cases")
    halves = [case for case, _ in planned_cases() if any(t.dtype == "f16" for t in case.tensors)]
    without = [kernel for case in halves for kernel in planned_kernels(case, folder, Caps())]
    assert any("f16w" in kernel.label for kernel in without)
    return list(dict.fromkeys([*(kernel for _, planned in planned_cases() for kernel in planned), *without]))


@functools.cache
def tint():
    from pydawn import utils, webgpu

    adapter = utils.request_adapter_sync(power_preference=webgpu.WGPUPowerPreference_HighPerformance)
    return utils, utils.request_device_sync(
        adapter, [webgpu.WGPUFeatureName_ShaderF16, webgpu.WGPUFeatureName_Subgroups]
    )


def compile_with_tint(source: str) -> None:
    utils, device = tint()
    utils.create_shader_module(device, source)


def test_tint_kernels_are_collected(kernels):
    assert len(kernels) > 20


@pytest.mark.parametrize("share", slow_but(["one of each template"], ["one of each template", "every one"]))
def test_tint_accepts_kernels(kernels, share):
    refused = []
    for kernel in kernels if share == "every one" else {kernel.template: kernel for kernel in kernels}.values():
        source = render(kernel, naga=False)
        assert source.isascii(), f"{kernel.label}: this Tint counts characters, not bytes"
        try:
            compile_with_tint(source)
        except RuntimeError as error:
            refused.append(f"{kernel.label}: {error}")
    assert not refused, "\n".join(refused)


@pytest.mark.slow
def test_naga_accepts_every_kernel(kernels, device):
    for kernel in kernels:
        device.pipeline(kernel)


def test_tint_rejects_invalid_kernel(tmp_path):
    """naga lets a barrier in non-uniform control flow pass; Tint must not."""
    (tmp_path / "bad.wgsl").write_text(
        '{$ include "kernel.wgsl" $}\n'
        "var<storage> y: array<u32>;\n"
        "@compute @workgroup_size(wg) fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        "    if (y[id.x] == 1u) { workgroupBarrier(); }\n}\n"
    )
    bad = Kernel(home_of(str(tmp_path)), "bad.wgsl", (), Uniforms.wgsl, 64, 0, 1, (("y", "read_write"),))
    with pytest.raises(RuntimeError, match="uniform"):
        compile_with_tint(render(bad))
