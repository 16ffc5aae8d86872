"""Saved plans with kernels of an attacker, whose hashes are right: a typed error before anything runs."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import pytest

import webpte
from tests.unit.test_saved_plans import saved  # noqa: F401


def _workgroup(size: str):
    return lambda text: re.sub(r"@workgroup_size\([^)]*\)", f"@workgroup_size({size})", text)


# name -> the change of the text of a kernel
HOSTILE = {
    "an undeclared binding": lambda text: text + "\n@group(0) @binding(63) var<storage, read_write> x: array<u32>;\n"
    "fn steal() -> u32 { return x[0]; }\n",
    "another group": lambda text: text.replace("@group(0) @binding(0)", "@group(3) @binding(0)"),
    "a binding as another kind": lambda text: text.replace("var<storage, read>", "var<uniform>"),
    "a workgroup beyond the limit": _workgroup("65535, 65535, 64"),
    "a workgroup of none": _workgroup("0"),
    "no entry point": lambda text: text.replace("@compute", ""),
    "no WGSL": lambda text: "a",
    "nothing": lambda text: "",
    "other characters": lambda text: text + "// é",
    "2 MB": lambda text: text + "\n" * (2 << 20),
    "an array of 4 GB in private memory": lambda text: text + "\nvar<private> big: array<u32, 1073741823>;\n",
    "workgroup memory beyond the limit": lambda text: text.replace(
        "{", "{ big[0] = 1u; ", 1) + "\nvar<workgroup> big: array<u32, 1073741823>;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_kernel_ends_in_a_typed_error(saved, name):  # noqa: F811
    folder, file = saved
    kernel = folder / "kernel0.wgsl"
    honest = kernel.read_bytes()
    row = _run(folder, file, honest)
    with pytest.raises((webpte.FormatError, webpte.GraphError, webpte.DeviceError)):
        _run(folder, file, HOSTILE[name](honest.decode()).encode())
    assert np.array_equal(_run(folder, file, honest), row)  # also afterwards


def _run(folder, file, kernel: bytes):
    """Return a row of the table by the plan with this kernel, whose hash is in the plan."""
    document = json.loads((folder / "plan.json").read_text())
    document["kernels"][0]["sha256"] = hashlib.sha256(kernel).hexdigest()
    (folder / "plan.json").write_text(json.dumps(document))
    (folder / "kernel0.wgsl").write_bytes(kernel)
    with webpte.open_plan(folder, [file]) as plan:
        return np.array(plan.method().run([np.array([4], np.int32)])[0])
