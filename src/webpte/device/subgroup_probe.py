"""The number of invocations that every subgroup of an adapter has, measured by a dispatch.

wgpu-native does not report it, and the names of drivers do not contain it. Some compilers choose the width of each
kernel by the registers that it needs. So kernels with few and with many live values are measured. If their widths
differ, kernels can rely on the smallest width of the WebGPU specification only.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import wgpu

from ..wgsl import read_cached, write_cached

logger = logging.getLogger(__name__)
MIN_SPECIFIED_WIDTH = 4
WIDTHS = (4, 8, 16, 32, 64, 128)  # all that the specification allows
WORKGROUP = 128  # as wide as the widest subgroup
LIVE_VALUES = (4, 64, 192)  # 32-bit registers of an invocation that the kernels need at least


def subgroup_width(adapter: Any) -> int:
    """Return the invocations that every subgroup has at least; 0 if no dispatch can measure it.

    The width is cached in the user's folder of caches, for the adapter, its driver and the version of wgpu.
    """
    texts = [_kernel_text(live) for live in LIVE_VALUES]
    key = (sorted(adapter.info.items()), wgpu.__version__, texts)
    name = f"subgroup-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}"
    cached = read_cached(name)
    if cached is not None and cached.isdecimal() and int(cached) in (0, *WIDTHS):
        return int(cached)
    width = reliable_width(_measure(adapter))
    write_cached(name, str(width))
    return width


def reliable_width(measured: Sequence[int]) -> int:
    """Return the width that kernels can rely on, from the width of every subgroup that was measured."""
    if not measured or not all(width in WIDTHS for width in measured):
        return 0
    return measured[0] if len(set(measured)) == 1 else MIN_SPECIFIED_WIDTH


def _measure(adapter: Any) -> list[int]:
    """Return the widths in each kernel; an empty list if the device fails, so that no kernel uses subgroups."""
    try:
        device = adapter.request_device_sync(label="webpte subgroup probe", required_features=["subgroup"])
    except RuntimeError as error:
        logger.warning("the width of subgroups cannot be measured, so kernels do not use them: %s", error)
        return []
    try:
        return [width for live in LIVE_VALUES for width in _kernel_widths(device, live)]
    except (wgpu.GPUError, RuntimeError) as error:
        logger.warning("the width of subgroups cannot be measured, so kernels do not use them: %s", error)
        return []
    finally:
        device.destroy()


def _kernel_widths(device: Any, live: int) -> list[int]:
    module = device.create_shader_module(code=_kernel_text(live))
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    buffers = [device.create_buffer(size=4 * size, usage=usage) for size in (WORKGROUP, 4 + 4 * WORKGROUP)]
    entries = [{"binding": n, "resource": {"buffer": buffer}} for n, buffer in enumerate(buffers)]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(1)
    compute.end()
    device.queue.submit([encoder.finish()])
    return [int(width) for width in np.frombuffer(device.queue.read_buffer(buffers[0]), np.uint32)]


def _kernel_text(live: int) -> str:
    """Return a kernel that counts the invocations of each subgroup beside a loop that keeps `live` values in registers.

    It gives 0 where `subgroup_size` differs from the count, or where a subgroup is not a run of invocations: kernels
    rely on both. The number of iterations is a value of the buffer, zero, which no compiler knows.
    """
    vectors = range(live // 4)
    starts = "\n".join(f"    var sum{n} = vec4<f32>({n}.0);" for n in vectors)
    steps = "\n".join(f"        sum{n} = sum{n} * x + sum{n - 1 if n else vectors[-1]}.yzwx;" for n in vectors)
    total = " + ".join(f"sum{n}" for n in vectors)
    return f"""
@group(0) @binding(0) var<storage, read_write> widths: array<u32>;
@group(0) @binding(1) var<storage, read_write> values: array<vec4<f32>>;

@compute @workgroup_size({WORKGROUP})
fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32) {{
{starts}
    for (var step = 0u; step < u32(values[0].x); step++) {{
        let x = values[step + 1u];
{steps}
    }}
    values[i + 1u] = {total};
    let width = subgroupAdd(1u);
    widths[i] = select(0u, width, width == size && subgroupMin(i) == i / width * width);
}}
"""
