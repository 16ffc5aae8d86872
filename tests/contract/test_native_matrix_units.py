"""wgpu-native has cooperative matrices, and no switch for programs that want them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from bench.compilers import drivers

REQUEST = """
import wgpu
adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
print("cooperative-matrix" in adapter.features)
try:
    adapter.request_device_sync(required_features=["cooperative-matrix", "shader-f16"])
except RuntimeError as error:
    print(error)
else:
    print("opened")
"""


def test_wgpu_native_refuses_devices_with_cooperative_matrices():
    """A Radeon without hardware offers them: see bench/compilers."""
    navi31 = drivers.DEVICES["navi31"]
    if reason := drivers.missing(navi31):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as runtime:
        driver = {**drivers.VENDORS[navi31.vendor].environment(navi31), "XDG_RUNTIME_DIR": runtime}
        command = [sys.executable, "-c", REQUEST]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **driver})
    listed, answer = done.stdout.split("\n", 1)
    assert listed == "True", done.stderr
    assert answer.strip() != "opened", (
        "wgpu-native now opens devices with cooperative matrices: native programs can have kernels for matrix units. "
        "Translate wgsl/lib/matrix.wgsl to naga's `enable wgpu_cooperative_matrix`, list the feature in "
        "device/adapter.py, and change docs/compilers.md#cooperative-matrices."
    )
    assert "experimental features are not enabled" in answer
