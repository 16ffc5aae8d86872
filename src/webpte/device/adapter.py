"""Adapters: which ones this machine has, which one programs run on, and what may be used of it.

WEBPTE_ADAPTER selects an adapter by its number in `webpte doctor`. WEBPTE_BACKEND selects the best adapter of a
backend: vulkan, metal, d3d12 or opengl. Unless one of them is set, WebGPU's recommendation is used. Of adapters of one
kind, wgpu recommends that of the first backend in this order, so on Windows Vulkan before Direct3D 12. WEBPTE_DXC is
the path of dxcompiler.dll, which then compiles kernels for Direct3D 12 instead of FXC.

WEBPTE_DEVICE restricts the adapter, to see how programs run on a smaller one:

WEBPTE_DEVICE=browser webpte run model.pte        # the limits that a browser grants by default
WEBPTE_DEVICE=no-f16,gpu python script.py
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import wgpu
from wgpu.backends import wgpu_native
from wgpu.backends.wgpu_native.extras import set_instance_extras

from ..environment import variable
from ..errors import DeviceError
from ..wgsl import APPLE, BROWSER_LIMITS, FEW_REGISTERS, MANY_REGISTERS, VENDOR_REGISTERS, Caps
from .process_events import defer_interrupts, keep_alive_in_child
from .subgroup_probe import WIDTHS, subgroup_width

ADAPTER_VARIABLE = "WEBPTE_ADAPTER"
BACKEND_VARIABLE = "WEBPTE_BACKEND"
BACKENDS = {
    "vulkan": "Vulkan",
    "metal": "Metal",
    "d3d12": "D3D12",
    "opengl": "OpenGL",
}  # as WEBPTE_BACKEND and wgpu name them
_PREFERRED_KINDS = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")  # the best one first
RESTRICTIONS_VARIABLE = "WEBPTE_DEVICE"
DXC_VARIABLE = "WEBPTE_DXC"
_SHADER_MODEL = 12.0  # which wgpu-py 0.32 passes as 6.6: it subtracts 6 and drops the fraction
_USED_FEATURES = ("shader-f16", "subgroup", "timestamp-query")

# Every limit wgpu-py would otherwise fill from the adapter, at the value the WebGPU specification guarantees.
SPEC_LIMITS = {
    "max-texture-dimension-1d": 8192,
    "max-texture-dimension-2d": 8192,
    "max-texture-dimension-3d": 2048,
    "max-texture-array-layers": 256,
    "max-bind-groups": 4,
    "max-bind-groups-plus-vertex-buffers": 24,
    "max-bindings-per-bind-group": 1000,
    "max-dynamic-uniform-buffers-per-pipeline-layout": 8,
    "max-dynamic-storage-buffers-per-pipeline-layout": 4,
    "max-sampled-textures-per-shader-stage": 16,
    "max-samplers-per-shader-stage": 16,
    "max-storage-buffers-per-shader-stage": 8,
    "max-storage-textures-per-shader-stage": 4,
    "max-uniform-buffers-per-shader-stage": 12,
    "max-uniform-buffer-binding-size": 64 << 10,
    "max-storage-buffer-binding-size": 128 << 20,
    "max-vertex-buffers": 8,
    "max-buffer-size": 256 << 20,
    "max-vertex-attributes": 16,
    "max-vertex-buffer-array-stride": 2048,
    "max-inter-stage-shader-variables": 16,
    "max-color-attachments": 8,
    "max-color-attachment-bytes-per-sample": 32,
    "max-compute-workgroup-storage-size": 16 << 10,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroups-per-dimension": 65535,
    "max-immediate-size": 0,
    "min-uniform-buffer-offset-alignment": 256,
    "min-storage-buffer-offset-alignment": 256,
}


@dataclass(frozen=True)
class AdapterInfo:
    """An adapter. One device has several adapters if several backends can reach it."""

    number: int  # as WEBPTE_ADAPTER and `--adapter` take it
    device: str
    backend: str  # "Vulkan", "Metal", "D3D12", "OpenGL"
    kind: str  # "DiscreteGPU", "IntegratedGPU", "CPU"
    driver: str
    vendor: str
    features: tuple[str, ...]
    limits: Mapping[str, int]
    chosen: bool  # whether programs run on it


def adapters() -> list[AdapterInfo]:
    """Return all adapters. An empty list is not an error."""
    try:
        _select_compiler()
        available = wgpu.gpu.enumerate_adapters_sync()
    except RuntimeError as error:
        raise DeviceError(f"cannot list the GPU adapters: {error}", code="adapters") from error
    chosen = _chosen_info() if available else {}
    return [_info(number, adapter, dict(adapter.info) == chosen) for number, adapter in enumerate(available)]


def wgpu_versions() -> dict[str, str]:
    """Return the versions of wgpu-py and wgpu-native."""
    return {"wgpu": wgpu.__version__, "wgpu-native": wgpu_native.__version__}


_selected: int | None = None  # by this process; without it, WEBPTE_ADAPTER decides


def adapter_number() -> str:
    """Return the number of the adapter that was selected, as a string; empty if wgpu selects one."""
    return variable(ADAPTER_VARIABLE) if _selected is None else str(_selected)


def select_adapter(number: int | None) -> int | None:
    """Select the adapter that `chosen_adapter` returns, or None for WEBPTE_ADAPTER's. Return the selection before."""
    global _selected
    before, _selected = _selected, number
    chosen_adapter.cache_clear()
    return before


@functools.cache
@defer_interrupts
def chosen_adapter() -> Any:
    """Return the adapter that programs run on."""
    try:
        adapter = _request_adapter()
    except DeviceError:
        raise
    except Exception as error:
        raise DeviceError(
            f"no WebGPU adapter: {error}",
            code="no_adapter",
            hint="Install a Vulkan, Metal or DX12 driver; "
            "on Debian without a GPU: apt-get install libvulkan1 mesa-vulkan-drivers.",
        ) from error
    keep_alive_in_child(adapter)
    return adapter


def adapter_caps() -> Caps:
    """Return the capabilities of the adapter that programs run on, within the restrictions of WEBPTE_DEVICE."""
    adapter = chosen_adapter()
    info = adapter.info
    name = f"{info['device']} ({info['backend_type']}, {info['description']})"
    features = frozenset(f for f in _USED_FEATURES if f in adapter.features)
    kind = "cpu" if info["adapter_type"] == "CPU" else "gpu"
    subgroup = _subgroup_width(adapter) if "subgroup" in features else 0
    vendor = vendor_of(info)
    registers = VENDOR_REGISTERS.get(vendor, MANY_REGISTERS)
    return _restrict(
        Caps(
            limits=dict(adapter.limits),
            features=features,
            adapter=name,
            kind=kind,
            subgroup=subgroup,
            registers=registers,
            vendor=vendor,
        )
    )


def vendor_of(info: Mapping[str, Any]) -> int:
    """Return the vendor of an adapter's description, 0 if it is not known. Through Metal only its name says so."""
    if info["backend_type"] == "Metal" and info["device"].startswith("Apple"):
        return APPLE
    return int(info.get("vendor_id", 0))


_subgroup_width = functools.lru_cache(1)(defer_interrupts(subgroup_width))  # `adapter_caps` is called often


def _select_compiler() -> None:
    """Let wgpu compile kernels for Direct3D 12 by DXC, if WEBPTE_DXC is set."""
    path = variable(DXC_VARIABLE)
    if path and not os.path.isfile(path):
        raise DeviceError(
            argument=DXC_VARIABLE,
            expected="the path of dxcompiler.dll",
            got=repr(path),
            code="no_compiler",
            hint="It is in the Windows SDK, and in Microsoft's DirectXShaderCompiler releases.",
        )
    if path:
        with contextlib.suppress(RuntimeError):  # wgpu has started, with what was selected then
            set_instance_extras(dx12_compiler="Dxc", dxc_path=path, dxc_max_shader_model=_SHADER_MODEL)


def _request_adapter() -> Any:
    _select_compiler()
    number = adapter_number()
    if not number:
        backend = variable(BACKEND_VARIABLE)
        return _best_of(backend) if backend else wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    available = wgpu.gpu.enumerate_adapters_sync()
    if not number.isdecimal() or int(number) >= len(available):
        infos = enumerate(adapter.info for adapter in available)
        listed = ", ".join(f"{index}: {info['device']} ({info['backend_type']})" for index, info in infos)
        raise DeviceError(
            argument=ADAPTER_VARIABLE,
            expected=f"the number of an adapter, {listed}" if listed else "no number: this machine has no adapter",
            got=repr(number),
            code="unknown_adapter",
        )
    return available[int(number)]


def _best_of(backend: str) -> Any:
    """Return the adapter of a backend that WebGPU would recommend."""
    available = wgpu.gpu.enumerate_adapters_sync()
    name = BACKENDS.get(backend.lower())
    matching = [adapter for adapter in available if adapter.info["backend_type"] == name]
    if not matching:
        here = {key for key, value in BACKENDS.items() if any(a.info["backend_type"] == value for a in available)}
        raise DeviceError(
            argument=BACKEND_VARIABLE,
            expected=f"a backend that has adapters here: {', '.join(sorted(here)) or 'none'}",
            got=repr(backend),
            code="unknown_backend",
        )
    return min(matching, key=lambda adapter: _PREFERRED_KINDS.index(adapter.info["adapter_type"]))


def _chosen_info() -> dict[str, Any]:
    try:
        return dict(chosen_adapter().info)
    except DeviceError:
        return {}


def _info(number: int, adapter: Any, chosen: bool) -> AdapterInfo:
    info = adapter.info
    return AdapterInfo(
        number=number,
        device=info["device"],
        backend=info["backend_type"],
        kind=info["adapter_type"],
        driver=info["description"],
        vendor=info["vendor"],
        features=tuple(sorted(adapter.features)),
        limits=dict(adapter.limits),
        chosen=chosen,
    )


def _without(caps: Caps, *features: str) -> Caps:
    remaining = caps.features.difference(features)
    return replace(caps, features=remaining, subgroup=caps.subgroup if "subgroup" in remaining else 0)


def _with_subgroups(caps: Caps, width: int) -> Caps:
    """Return capabilities with at most this width. A width that could not be measured is taken from the caller."""
    known = caps.subgroup or (width if "subgroup" in caps.features else 0)
    return replace(caps, subgroup=min(known, width))


def exact_products(caps: Caps) -> Caps:
    """Return capabilities with which products are computed in f32. Kernels are tuned for them separately."""
    return caps if caps.exact else replace(caps, exact=True, adapter=f"{caps.adapter}, exact")


RESTRICTIONS: dict[str, Callable[[Caps], Caps]] = {
    "browser": lambda caps: _without(caps.within(BROWSER_LIMITS), "shader-f16", "subgroup"),
    "no-f16": lambda caps: _without(caps, "shader-f16"),
    "no-subgroups": lambda caps: _without(caps, "subgroup"),
    "exact": lambda caps: replace(caps, exact=True),
    "gpu": lambda caps: replace(caps, kind="gpu"),  # the kernels that a GPU would run, on any device
    "few-registers": lambda caps: replace(caps, registers=FEW_REGISTERS),
    **{f"subgroup-{width}": functools.partial(_with_subgroups, width=width) for width in WIDTHS},
}


def _restrict(caps: Caps) -> Caps:
    """Return the capabilities that WEBPTE_DEVICE leaves, under a name of their own.

    Kernels that were tuned for one set of capabilities are not used for another.
    """
    names = [name.strip() for name in variable(RESTRICTIONS_VARIABLE).split(",") if name.strip()]
    if unknown := sorted(set(names) - set(RESTRICTIONS)):
        raise DeviceError(
            argument=RESTRICTIONS_VARIABLE,
            expected=f"a comma-separated list of {', '.join(RESTRICTIONS)}",
            got=", ".join(unknown),
            code="unknown_restriction",
        )
    for name in names:
        caps = RESTRICTIONS[name](caps)
    return replace(caps, adapter=f"{caps.adapter} as {', '.join(names)}") if names else caps
