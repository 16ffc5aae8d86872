"""What a machine has: every adapter of every backend, and the versions of what speaks to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import wgpu
from wgpu.backends import wgpu_native

from ..errors import DeviceError
from .gpu import chosen_adapter


@dataclass(frozen=True)
class AdapterInfo:
    """One way to a device. The same device may be there several times, through different backends."""

    device: str
    backend: str  # "Vulkan", "Metal", "D3D12", "OpenGL"
    kind: str  # "DiscreteGPU", "IntegratedGPU", "CPU"
    driver: str
    vendor: str
    features: tuple[str, ...]
    limits: Mapping[str, int]
    chosen: bool  # the one that programs are run on


def adapters() -> list[AdapterInfo]:
    """All adapters; none is no error here."""
    try:
        found = wgpu.gpu.enumerate_adapters_sync()
    except RuntimeError as error:
        raise DeviceError(f"the adapters cannot be listed: {error}") from error
    chosen = _chosen() if found else {}
    return [_info(adapter, dict(adapter.info) == chosen) for adapter in found]


def wgpu_versions() -> dict[str, str]:
    return {"wgpu": wgpu.__version__, "wgpu-native": wgpu_native.__version__}


def _chosen() -> dict[str, Any]:
    try:
        return dict(chosen_adapter().info)
    except DeviceError:
        return {}


def _info(adapter: Any, chosen: bool) -> AdapterInfo:
    info = adapter.info
    return AdapterInfo(
        info["device"],
        info["backend_type"],
        info["adapter_type"],
        info["description"],
        info["vendor"],
        tuple(sorted(adapter.features)),
        dict(adapter.limits),
        chosen,
    )
