"""Compile kernels in a process whose environment selects a driver: `python worker.py < kernels.json 2> reports`.

Reads a list of kernels (`drivers.Source` as JSON) and prints what the adapter is as JSON. The driver writes its reports
to stderr or to stdout, and both arrive in stderr, between the lines `@@ begin NUMBER` and `@@ end`. Imports nothing but
wgpu, so that any Python with it can run this file.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import wgpu

FEATURES = ("shader-f16", "subgroup", "timestamp-query")  # those that webpte uses
MAX_BINDINGS = 64  # storage buffers of a kernel; some adapters offer millions


libc = ctypes.CDLL(None)


def mark(text: str) -> None:
    sys.stderr.flush()
    libc.fflush(None)  # what a driver has printed so far
    os.write(2, f"\n@@ {text}\n".encode())


def layouts(device: Any, reads: int, writes: int) -> Any:
    """Return the pipeline layout of a kernel, as device/gpu.py has it."""

    def group(kinds: list[str]) -> Any:
        entries = [{"binding": i, "visibility": 4, "buffer": {"type": kind}} for i, kind in enumerate(kinds)]
        return device.create_bind_group_layout(entries=entries)

    groups = [group(["uniform", "uniform"]), group(["read-only-storage"] * reads + ["storage"] * writes)]
    return device.create_pipeline_layout(bind_group_layouts=groups)


def main() -> None:
    kernels = json.load(sys.stdin)
    result = os.dup(1)
    os.dup2(2, 1)
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    limits = {name: value for name, value in adapter.limits.items() if name.startswith("max-compute")}
    limits["max-storage-buffers-per-shader-stage"] = min(
        adapter.limits["max-storage-buffers-per-shader-stage"], MAX_BINDINGS
    )
    features = [name for name in FEATURES if name in adapter.features]
    device = adapter.request_device_sync(required_features=features, required_limits=limits)
    for number, kernel in enumerate(kernels):
        mark(f"begin {number}")
        try:
            module = device.create_shader_module(code=kernel["text"])
            compute = {"module": module, "entry_point": "main"}
            if kernel["workgroup"] is not None:
                compute["constants"] = {"wg": kernel["workgroup"]}
            layout = "auto" if kernel["reads"] is None else layouts(device, kernel["reads"], kernel["writes"])
            device.create_compute_pipeline(layout=layout, compute=compute)
        except wgpu.GPUError as error:
            mark(f"error {' '.join(str(error).split())}")
        mark("end")
    info = dict(adapter.info)
    about = {
        "device": info["device"],
        "driver": info["description"],
        "backend": info["backend_type"],
        "kind": info["adapter_type"],
        "features": sorted(features),
        "limits": dict(adapter.limits),
        "wgpu": wgpu.__version__,
    }
    os.write(result, json.dumps(about).encode())


if __name__ == "__main__":
    main()
