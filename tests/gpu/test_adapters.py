"""An adapter is selected by its number; an unknown number raises an error that lists all adapters."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.device import adapters, gpu, use_adapter
from webpte.device.adapter import ADAPTER_VARIABLE, chosen_adapter, select_adapter


@pytest.fixture
def apart(monkeypatch):
    """Run in a process that has opened no device."""
    monkeypatch.setattr(gpu, "_OPEN", [])
    monkeypatch.setenv(ADAPTER_VARIABLE, "")
    before = select_adapter(None)
    yield
    monkeypatch.undo()
    select_adapter(before)


def test_use_adapter_selects_each_adapter(apart):
    for adapter in adapters():
        use_adapter(adapter.number)
        assert chosen_adapter().info["device"] == adapter.device
        assert chosen_adapter().info["backend_type"] == adapter.backend


@pytest.mark.parametrize("value", ["99", "-1", "fast"])
def test_use_adapter_unknown_number_lists_adapters(apart, monkeypatch, value):
    monkeypatch.setenv(ADAPTER_VARIABLE, value)
    listed = [f" {adapter.number}: {adapter.device} ({adapter.backend})" for adapter in adapters()]
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
