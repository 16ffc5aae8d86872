"""Translate kernels to SPIR-V by Tint, Chrome's translator, in the Dawn of the tests (dawn-python).

Dawn translates when it makes a pipeline, and its toggle `dump_shaders` logs the result. It needs a Vulkan device with
f16 and subgroups; llvmpipe is one. The writers of Metal's language and HLSL are only in Dawn for these systems.
"""

from __future__ import annotations

import ctypes
import functools
import re
import time
from dataclasses import dataclass, field
from typing import Any

from .kernels import Source

_SPIRV = "/* Dumped generated SPIRV disassembly */"
_WORKGROUP = re.compile(r"^override wg\b[^;]*;", re.MULTILINE)


@dataclass
class Dawn:
    """A device of Dawn, and what it has logged since the last kernel."""

    device: Any
    logged: list[str] = field(default_factory=list)
    callbacks: list[Any] = field(default_factory=list)  # Dawn calls them as long as the device is there


def wgsl(source: Source) -> str:
    """Return the text of a kernel for Tint, which requires `enable subgroups`, with the size of its workgroups."""
    text = _WORKGROUP.sub(f"const wg: u32 = {source.workgroup}u;", source.text)
    return f"enable subgroups;\n{text}" if source.subgroups else text


def translate(source: Source) -> tuple[str, str, int]:
    """Return SPIR-V's text, the error and the milliseconds of a processor. With an error there is no text."""
    from pydawn import utils

    dawn = _dawn()
    dawn.logged.clear()
    start = time.process_time()
    try:
        module = utils.create_shader_module(dawn.device, wgsl(source))
        utils.create_compute_pipeline(dawn.device, None, {"module": module, "entry_point": "main"})
    except RuntimeError as error:
        return "", str(error), 0
    milliseconds = round((time.process_time() - start) * 1000)
    text = next((text for text in dawn.logged if text.startswith(_SPIRV)), "")
    return text, "" if text else "Dawn logged no SPIR-V", milliseconds


@functools.cache
def _dawn() -> Dawn:
    from pydawn import utils, webgpu

    characters = ctypes.POINTER(ctypes.c_char)
    names = [ctypes.create_string_buffer(name) for name in (b"allow_unsafe_apis", b"dump_shaders")]
    toggles = webgpu.WGPUDawnTogglesDescriptor()
    toggles.chain.sType = webgpu.WGPUSType_DawnTogglesDescriptor
    toggles.enabledToggleCount = len(names)
    toggles.enabledToggles = (characters * len(names))(*(ctypes.cast(name, characters) for name in names))
    features = (webgpu.WGPUFeatureName * 2)(webgpu.WGPUFeatureName_ShaderF16, webgpu.WGPUFeatureName_Subgroups)
    adapter = utils.request_adapter_sync(power_preference=webgpu.WGPUPowerPreference_HighPerformance)
    offered, limits = webgpu.WGPUSupportedLimits(), webgpu.WGPURequiredLimits()
    webgpu.wgpuAdapterGetLimits(adapter, ctypes.pointer(offered))
    limits.limits = offered.limits
    descriptor = webgpu.WGPUDeviceDescriptor()
    descriptor.nextInChain = ctypes.cast(ctypes.pointer(toggles), ctypes.POINTER(webgpu.struct_WGPUChainedStruct))
    descriptor.requiredFeatureCount = len(features)
    descriptor.requiredFeatures = ctypes.cast(features, ctypes.POINTER(webgpu.WGPUFeatureName))
    descriptor.requiredLimits = ctypes.pointer(limits)
    devices: list[Any] = []
    request = webgpu.WGPURequestDeviceCallbackInfo()
    request.mode = webgpu.WGPUCallbackMode_WaitAnyOnly
    request.callback = webgpu.WGPURequestDeviceCallback(lambda status, device, message, data: devices.append(device))
    utils.wait(webgpu.wgpuAdapterRequestDeviceF(adapter, descriptor, request))
    if not devices or not devices[0]:
        raise RuntimeError("Dawn has no device with f16 and subgroups")
    dawn = Dawn(devices[0])
    log = webgpu.WGPULoggingCallback(lambda kind, message, data: dawn.logged.append(utils.from_wgpu_str(message)))
    dawn.callbacks.append(log)
    webgpu.wgpuDeviceSetLoggingCallback(dawn.device, log, None)
    return dawn
