"""Examine this machine: versions, adapters, features, limits, chosen kernels, and a self-test."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np

from ..device import AdapterInfo, adapter_caps, adapters, wgpu_versions
from ..environment import for_child, variable, variables
from ..graph import DType, Graph, Int
from ..plan import make_planner
from ..runtime.tuning import read_tuning
from ..version import __version__
from ..wgsl import BROWSER_LIMITS, Caps
from .selftest import GraphBuilder, SelfTestReport

OPTIONAL = ("torch", "executorch")


def versions() -> dict[str, str]:
    """Return the versions of webpte and its dependencies, and of the exporter if it is installed."""
    installed = {"webpte": __version__, **wgpu_versions(), "numpy": np.__version__, "python": platform.python_version()}
    for package in OPTIONAL:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**installed, "os": platform.platform()}


class Machine(TypedDict):
    """The machine and time of stored results."""

    adapter: str
    versions: dict[str, str]
    date: Annotated[str, "ISO 8601"]


class AdapterReport(TypedDict):
    """An adapter of this machine."""

    number: int
    device: str
    backend: str
    kind: str
    driver: str
    vendor: str
    features: list[str]
    limits: dict[str, int]
    chosen: Annotated[bool, "the one that programs run on"]


class FeatureReport(TypedDict):
    """An optional feature that webpte uses."""

    name: str
    offered: bool
    effect: str


class LimitReport(TypedDict):
    """A limit that webpte uses."""

    name: str
    offered: int
    browser: int
    decides: str


class VariantReport(TypedDict):
    """The kernel that is selected for a typical shape of an op."""

    family: str
    shape: str
    chosen: str
    why: str
    others: list[str]


class DoctorReport(TypedDict):
    """Everything a bug report needs."""

    ok: Annotated[bool, "whether programs can run here"]
    versions: dict[str, str]
    environment: Annotated[dict[str, str], "variables that decide which drivers are found"]
    adapters: list[AdapterReport]
    features: list[FeatureReport]
    limits: list[LimitReport]
    variants: Annotated[list[VariantReport], "ops with several kernels"]
    self_test: Annotated[SelfTestReport | None, "null with --no-test"]
    remedies: list[str]


def machine() -> Machine:
    """Return the adapter, the versions and the time, for stored results."""
    return {
        "adapter": adapter_caps().adapter,
        "versions": versions(),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


# feature -> effect with it, effect without it
FEATURES = {
    "shader-f16": ("f16 tensors take two bytes an element", "f16 tensors take four, and each result is rounded to f16"),
    "subgroup": ("kernels may share values within a subgroup", "kernels that share values use workgroup memory"),
    "timestamp-query": ("profiles time the device by its own clock", "profiles time the device by the host's clock"),
}
# limit -> its effect
LIMITS = {
    "max-storage-buffer-binding-size": "a larger weight is split if its op allows, otherwise rejected",
    "max-buffer-size": "a larger tensor is rejected",
    "max-storage-buffers-per-shader-stage": "tensors that one kernel reads and writes",
    "max-compute-invocations-per-workgroup": "workgroups are clamped to it",
    "max-compute-workgroup-size-x": "likewise",
    "max-compute-workgroup-storage-size": "memory that a workgroup shares",
    "max-compute-workgroups-per-dimension": "larger grids are folded",
}

LAYER_WIDTH, GROUP_SIZE = 512, 32  # of typical layers


def features(offered: Collection[str]) -> list[FeatureReport]:
    """Return every optional feature that webpte uses: whether it is available, and the effect."""
    return [
        {"name": name, "offered": name in offered, "effect": with_it if name in offered else without}
        for name, (with_it, without) in FEATURES.items()
    ]


def limits(caps: Caps) -> list[LimitReport]:
    """Return every limit that webpte uses, here and in a browser."""
    return [
        {"name": name, "offered": caps.limit(name), "browser": BROWSER_LIMITS[name], "decides": what}
        for name, what in LIMITS.items()
    ]


def variants(caps: Caps) -> list[VariantReport]:
    """Return ops with several kernels: the one chosen for typical shapes on this device, and the alternatives."""
    measured = read_tuning(caps)
    choices: dict[str, VariantReport] = {}
    for rows in (1, 128):
        for job in make_planner(_typical(rows), caps, (), tuning=measured).examples:
            best = measured.get(job.key)
            chosen = best if best in job.names else job.names[0]
            choices[job.key] = {
                "family": job.family,
                "shape": " ".join(map(str, job.shape)),
                "chosen": chosen,
                "why": "the fastest measured" if best == chosen else f"the first choice for a {caps.kind.upper()}",
                "others": [name for name in job.names if name != chosen],
            }
    return list(choices.values())


def _typical(rows: int) -> Graph:
    """Return layers of a language model over one token, as in decoding, or over several, as in prefill."""
    b = GraphBuilder()
    x, weight = b.tensor(rows, LAYER_WIDTH), b.tensor(LAYER_WIDTH, LAYER_WIDTH)
    linear = b.call("aten.linear.default", x, weight, b.null(), out=b.tensor(rows, LAYER_WIDTH))
    codes, scales = (
        b.tensor(LAYER_WIDTH, LAYER_WIDTH // 2, dtype=DType.UINT8),
        b.tensor(LAYER_WIDTH // GROUP_SIZE, LAYER_WIDTH),
    )
    group = b.add(Int(GROUP_SIZE))
    q4 = b.call("et_vk.linear_q4gsw.default", x, codes, scales, group, b.null(), out=b.tensor(rows, LAYER_WIDTH))
    query, key, value = b.tensor(1, 8, rows, 64), b.tensor(1, 8, 256, 64), b.tensor(1, 8, 256, 64)
    heads = b.tensor(1, 8, rows, 64)
    attended = b.call("et_vk.sdpa.default", query, key, value, b.null(), b.null(), out=heads)
    return b.graph([x, weight, codes, scales, query, key, value], [linear, q4, attended])


# Variables that select drivers and the cache of compiled shaders.
ENVIRONMENT = (
    "WEBPTE_ADAPTER",
    "WEBPTE_BACKEND",
    "WEBPTE_DEVICE",
    "WEBPTE_DXC",
    "WEBPTE_MAX_SUBMIT_MS",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "WGPU_BACKEND_TYPE",
    "WGPU_ADAPTER_NAME",
    "XDG_RUNTIME_DIR",
    "MESA_SHADER_CACHE_DIR",
    "MESA_SHADER_CACHE_DISABLE",
)
MAX_SELF_TEST_SECONDS = 120
NO_ADAPTER = [
    "Install a driver for the GPU: Vulkan on Linux, Metal and DX12 come with macOS and Windows.",
    "Without a GPU, use Mesa's software device: apt-get install libvulkan1 mesa-vulkan-drivers on Debian.",
    "In a container, mount the driver's files and /dev/dri; VK_DRIVER_FILES must not hide them.",
]


def examine(self_test: bool = True) -> DoctorReport:
    """Return everything a bug report needs. `ok` is whether programs can run here."""
    available = adapters()
    report: DoctorReport = {
        "ok": False,
        "versions": versions(),
        "environment": variables(ENVIRONMENT),
        "adapters": [_adapter(adapter) for adapter in available],
        "features": [],
        "limits": [],
        "variants": [],
        "self_test": None,
        "remedies": [],
    }
    chosen = next((adapter for adapter in available if adapter.chosen), None)
    if chosen is None:
        return {**report, "remedies": NO_ADAPTER}
    caps = adapter_caps()
    report["features"] = features(caps.features)
    report["limits"] = limits(caps)
    report["variants"] = variants(caps)
    report["self_test"] = test = run_self_test() if self_test else None
    report["ok"] = test is None or test["ok"]
    report["remedies"] = _advice(chosen, report["environment"], test)
    return report


def _adapter(adapter: AdapterInfo) -> AdapterReport:
    return {
        "number": adapter.number,
        "device": adapter.device,
        "backend": adapter.backend,
        "kind": adapter.kind,
        "driver": adapter.driver,
        "vendor": adapter.vendor,
        "features": list(adapter.features),
        "limits": dict(adapter.limits),
        "chosen": adapter.chosen,
    }


def run_self_test() -> SelfTestReport:
    """Run the self-test in a child process, because a broken driver may abort the process."""
    try:
        child = self_test_child()
    except subprocess.TimeoutExpired:
        return _broken(f"the device did not answer within {MAX_SELF_TEST_SECONDS} s")
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return _broken(f"the process ended with {child.returncode}: {last}")
    result: SelfTestReport = json.loads(child.stdout.splitlines()[-1])
    return result


def self_test_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the ended process of a self-test. Its stdin is a pipe that closes when this process ends, however it ends:
    the child then ends itself, because a command that is interrupted may have no time to end it.
    """
    source = str(Path(__file__).parents[2])
    paths = [source, variable("PYTHONPATH")]
    environment = for_child({"PYTHONPATH": os.pathsep.join(filter(None, paths))})
    command = [sys.executable, "-m", "webpte.debug.selftest", *arguments]
    reader, writer = os.pipe()  # the child does not inherit `writer`
    try:
        return subprocess.run(
            command,
            stdin=reader,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a driver writes as it likes
            timeout=MAX_SELF_TEST_SECONDS,
            env=environment,
        )
    finally:
        os.close(reader)
        os.close(writer)


def _broken(problem: str) -> SelfTestReport:
    """Return the report of a self-test that did not finish."""
    return {
        "ok": False,
        "problem": problem,
        "checks": [],
        "round_trip": None,
        "copy_bytes_per_second": None,
        "seconds": None,
    }


def _advice(chosen: AdapterInfo, environment: Mapping[str, str], test: SelfTestReport | None) -> list[str]:
    advice = []
    if chosen.kind == "CPU":
        advice.append("This is a software device: programs run slowly. A GPU requires its own driver.")
    if chosen.backend == "OpenGL":
        advice.append(
            "OpenGL is wgpu's last choice and lacks much of WebGPU. Install a Vulkan driver"
            + ("; VK_DRIVER_FILES or VK_ICD_FILENAMES hides the installed ones." if _hidden(environment) else ".")
        )
    if chosen.backend == "D3D12" and "WEBPTE_DXC" in environment:
        advice.append("For Direct3D 12, DXC compiles kernels: WEBPTE_DXC is set.")
    elif chosen.backend == "D3D12":
        advice.append(
            "For Direct3D 12, wgpu compiles kernels with FXC, at every start: a language model takes about 20 s. "
            "A Vulkan driver is faster: WEBPTE_BACKEND=vulkan selects it where there is one. "
            "DXC is faster too: set WEBPTE_DXC to the path of dxcompiler.dll."
        )
    if test is not None and not test["ok"]:
        advice.append("Update the driver. If the self-test still fails, please report it with the text below.")
    return advice


def _hidden(environment: Mapping[str, str]) -> bool:
    return "VK_DRIVER_FILES" in environment or "VK_ICD_FILENAMES" in environment


def bug_report(report: DoctorReport) -> str:
    """Return a text for an issue."""
    lines = [", ".join(f"{name} {number}" for name, number in report["versions"].items())]
    for adapter in report["adapters"]:
        number = f"{adapter['number']}{'*' * adapter['chosen']}"
        lines.append(f"{number} {adapter['device']} | {adapter['backend']} | {adapter['kind']} | {adapter['driver']}")
    if not report["adapters"]:
        lines.append("no adapters")
    lines += [f"{name}={value}" for name, value in report["environment"].items()]
    lines += [f"{feature['name']}: {'yes' if feature['offered'] else 'no'}" for feature in report["features"]]
    lines += [f"{limit['name']}: {limit['offered']}" for limit in report["limits"]]
    if report["self_test"] is not None:
        lines.append(f"self-test: {_outcome(report['self_test'])}")
    return "\n".join(lines)


def _outcome(test: SelfTestReport) -> str:
    if test["problem"] is not None:
        return str(test["problem"])
    if not test["ok"]:
        return "; ".join(f"{check['name']}: {check['detail']}" for check in test["checks"] if not check["ok"])
    trip, copies = test["round_trip"], test["copy_bytes_per_second"]
    assert trip is not None and copies is not None, "a self-test that ends well measures both"
    return f"ok, round trip {trip['median'] * 1e6:.0f} µs, copy {copies / 1e9:.1f} GB/s"
