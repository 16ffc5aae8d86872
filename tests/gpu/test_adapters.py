"""An adapter is selected by its number or its backend; an unknown one raises an error that lists all adapters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import wgpu
from wgpu.backends.wgpu_native import _helpers, extras, lib

import webpte
from tests.support.harness.errors import raises
from webpte.device import adapter, adapters, gpu, use_adapter
from webpte.device.adapter import (
    ADAPTER_VARIABLE,
    BACKEND_VARIABLE,
    BACKENDS,
    DXC_VARIABLE,
    chosen_adapter,
    select_adapter,
)


@pytest.fixture
def apart(monkeypatch):
    """Run in a process that has opened no device."""
    monkeypatch.setattr(gpu, "_OPEN", [])
    monkeypatch.setenv(ADAPTER_VARIABLE, "")
    monkeypatch.setenv(BACKEND_VARIABLE, "")
    before = select_adapter(None)
    yield
    monkeypatch.undo()
    select_adapter(before)


def test_use_adapter_selects_each_adapter(apart):
    for each in adapters():
        use_adapter(each.number)
        assert chosen_adapter().info["device"] == each.device
        assert chosen_adapter().info["backend_type"] == each.backend


@pytest.mark.parametrize("value", ["99", "-1", "fast"])
def test_use_adapter_unknown_number_lists_adapters(apart, monkeypatch, value):
    monkeypatch.setenv(ADAPTER_VARIABLE, value)
    listed = [f" {each.number}: {each.device} ({each.backend})" for each in adapters()]
    with raises(webpte.DeviceError, ADAPTER_VARIABLE, f"'{value}'", *listed, code="unknown_adapter"):
        chosen_adapter()


def test_use_adapter_device_open_refuses_change(apart):
    use_adapter(0)
    opened = gpu.acquire({})
    try:
        use_adapter(0)
        with raises(webpte.DeviceError, "adapter 1", code="in_use"):
            use_adapter(1)
    finally:
        opened.release()
    with raises(webpte.DeviceError, ADAPTER_VARIABLE, "'99'", code="unknown_adapter"):
        use_adapter(99)
    use_adapter(0)  # what was refused is not what comes next


def test_backend_selects_its_adapter(apart, monkeypatch):
    here = {each.backend for each in adapters()}
    for name in (name for name, backend in BACKENDS.items() if backend in here):
        monkeypatch.setenv(BACKEND_VARIABLE, name)
        select_adapter(None)
        assert chosen_adapter().info["backend_type"] == BACKENDS[name]


@pytest.mark.parametrize("value", ["metal", "fast"])
def test_backend_without_adapters_lists_backends(apart, monkeypatch, value):
    monkeypatch.setenv(BACKEND_VARIABLE, value)
    with raises(webpte.DeviceError, BACKEND_VARIABLE, f"'{value}'", "vulkan", code="unknown_backend"):
        chosen_adapter()


@pytest.mark.parametrize(
    ("backend", "device"), [("vulkan", "card (Vulkan)"), ("D3D12", "card (D3D12)"), ("opengl", "card (OpenGL)")]
)
def test_backend_selects_best_adapter_of_a_pc(apart, monkeypatch, backend, device):
    """On Windows, several backends reach the same card, and Direct3D 12 has a software adapter as well."""
    listed = [
        ("IntegratedGPU", "Vulkan", "graphics (Vulkan)"),
        ("DiscreteGPU", "Vulkan", "card (Vulkan)"),
        ("CPU", "D3D12", "software (D3D12)"),
        ("IntegratedGPU", "D3D12", "graphics (D3D12)"),
        ("DiscreteGPU", "D3D12", "card (D3D12)"),
        ("Unknown", "OpenGL", "card (OpenGL)"),
    ]
    adapters = [
        SimpleNamespace(info={"adapter_type": kind, "backend_type": name, "device": title})
        for kind, name, title in listed
    ]
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: adapters)
    monkeypatch.setattr(adapter, "keep_alive_in_child", lambda chosen: None)
    monkeypatch.setenv(BACKEND_VARIABLE, backend)
    assert chosen_adapter().info["device"] == device


def test_adapter_number_precedes_backend(apart, monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, "metal")
    monkeypatch.setenv(ADAPTER_VARIABLE, "0")
    assert chosen_adapter().info["device"] == adapters()[0].device


def test_dxc_is_passed_to_wgpu_before_its_first_adapter(apart, monkeypatch, tmp_path):
    """wgpu ignores it here: only Direct3D 12 has the compiler."""
    library = tmp_path / "dxcompiler.dll"
    library.write_bytes(b"")
    passed = []

    def create(extras):
        passed.append(extras)
        return _helpers.get_wgpu_instance(extras)

    monkeypatch.setenv(DXC_VARIABLE, str(library))
    monkeypatch.setattr(extras, "get_wgpu_instance", create)
    here = [each.device for each in adapters()]  # wgpu may have started
    passed.clear()
    monkeypatch.setattr(_helpers, "_the_instance", None)
    assert [each.device for each in adapters()] == here
    assert passed[0].dx12ShaderCompiler == lib.WGPUDx12Compiler_Dxc
    assert passed[0].dxcMaxShaderModel == lib.WGPUDxcMaxShaderModel_V6_6


def test_dxc_that_is_missing_is_refused(apart, monkeypatch, tmp_path):
    monkeypatch.setenv(DXC_VARIABLE, str(tmp_path / "none.dll"))
    for use in (adapters, chosen_adapter):
        with raises(webpte.DeviceError, DXC_VARIABLE, tmp_path / "none.dll", code="no_compiler"):
            use()
