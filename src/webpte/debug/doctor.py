"""Examine this machine: versions, adapters, features, limits, chosen kernels, and a self-test."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..device import AdapterInfo, adapter_caps, adapters, wgpu_versions
from ..graph import DType, Graph, Int
from ..plan import make_planner
from ..runtime.tuning import read_tuning
from ..version import __version__
from ..wgsl import BROWSER_LIMITS, Caps
from .selftest import GraphBuilder

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


def machine() -> dict[str, Any]:
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


def features(offered: Collection[str]) -> list[dict[str, Any]]:
    """Return every optional feature that webpte uses: whether it is available, and the effect."""
    return [
        {"name": name, "offered": name in offered, "effect": with_it if name in offered else without}
        for name, (with_it, without) in FEATURES.items()
    ]


def limits(caps: Caps) -> list[dict[str, Any]]:
    """Return every limit that webpte uses, here and in a browser."""
    return [
        {"name": name, "offered": caps.limit(name), "browser": BROWSER_LIMITS[name], "decides": what}
        for name, what in LIMITS.items()
    ]


def variants(caps: Caps) -> list[dict[str, Any]]:
    """Return ops with several kernels: the one chosen for typical shapes on this device, and the alternatives."""
    measured = read_tuning(caps)
    choices: dict[str, dict[str, Any]] = {}
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
    "WEBPTE_DEVICE",
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


def examine(self_test: bool = True) -> dict[str, Any]:
    """Return everything a bug report needs. `ok` is whether programs can run here."""
    available = adapters()
    report: dict[str, Any] = {
        "ok": False,
        "versions": versions(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        "adapters": [asdict(adapter) for adapter in available],
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
    report["self_test"] = run_self_test() if self_test else None
    report["ok"] = not self_test or report["self_test"]["ok"]
    report["remedies"] = _advice(chosen, report["environment"], report["self_test"])
    return report


def run_self_test() -> dict[str, Any]:
    """Run the self-test in a child process, because a broken driver may abort the process."""
    try:
        child = self_test_child()
    except subprocess.TimeoutExpired:
        return _broken(f"the device did not answer within {MAX_SELF_TEST_SECONDS} s")
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return _broken(f"the process ended with {child.returncode}: {last}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result


def self_test_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the ended process of a self-test."""
    source = str(Path(__file__).parents[2])
    paths = [source, os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "webpte.debug.selftest", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAX_SELF_TEST_SECONDS, env=environment)


def _broken(problem: str) -> dict[str, Any]:
    """Return the report of a self-test that did not finish."""
    absent = dict.fromkeys(("round_trip", "copy_bytes_per_second", "seconds"))
    return {"ok": False, "problem": problem, "checks": [], **absent}


def _advice(chosen: AdapterInfo, environment: Mapping[str, str], test: Mapping[str, Any] | None) -> list[str]:
    advice = []
    if chosen.kind == "CPU":
        advice.append("This is a software device: programs run slowly. A GPU requires its own driver.")
    if chosen.backend == "OpenGL":
        advice.append(
            "OpenGL is wgpu's last choice and lacks much of WebGPU. Install a Vulkan driver"
            + ("; VK_DRIVER_FILES or VK_ICD_FILENAMES hides the installed ones." if _hidden(environment) else ".")
        )
    if test is not None and not test["ok"]:
        advice.append("Update the driver. If the self-test still fails, please report it with the text below.")
    return advice


def _hidden(environment: Mapping[str, str]) -> bool:
    return "VK_DRIVER_FILES" in environment or "VK_ICD_FILENAMES" in environment


def bug_report(report: Mapping[str, Any]) -> str:
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


def _outcome(test: Mapping[str, Any]) -> str:
    if test["problem"] is not None:
        return str(test["problem"])
    if not test["ok"]:
        return "; ".join(f"{check['name']}: {check['detail']}" for check in test["checks"] if not check["ok"])
    trip = test["round_trip"]["median"] * 1e6
    return f"ok, round trip {trip:.0f} µs, copy {test['copy_bytes_per_second'] / 1e9:.1f} GB/s"
