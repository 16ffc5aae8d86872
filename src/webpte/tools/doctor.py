"""What this machine has, what of it programs can use, and whether it works."""

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
from ..runtime.choices import read_choices
from ..version import __version__
from ..wgsl import BROWSER_LIMITS, Caps
from .selftest import GraphBuilder

OPTIONAL = ("torch", "executorch")


def versions() -> dict[str, str]:
    """Of webpte and what it stands on, and of what exports for it, where that is installed."""
    found = {"webpte": __version__, **wgpu_versions(), "numpy": np.__version__, "python": platform.python_version()}
    for package in OPTIONAL:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "os": platform.platform()}


def machine() -> dict[str, Any]:
    """The adapter, the versions and the time, for results that are kept."""
    return {
        "adapter": adapter_caps().adapter,
        "versions": versions(),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


# feature -> what it is for, and what happens without it
FEATURES = {
    "shader-f16": ("f16 tensors take two bytes an element", "f16 tensors take four, and each result is rounded to f16"),
    "subgroup": ("kernels may share values within a subgroup", "kernels that share values use workgroup memory"),
    "timestamp-query": ("profiles time the device by its own clock", "profiles time the device by the host's clock"),
}
# limit -> what it decides
LIMITS = {
    "max-storage-buffer-binding-size": "a weight beyond it is split where its op can, refused where it cannot",
    "max-buffer-size": "a tensor beyond it is refused",
    "max-storage-buffers-per-shader-stage": "tensors that one kernel reads and writes",
    "max-compute-invocations-per-workgroup": "workgroups are clamped to it",
    "max-compute-workgroup-size-x": "likewise",
    "max-compute-workgroup-storage-size": "memory that a workgroup shares",
    "max-compute-workgroups-per-dimension": "larger grids are folded",
}

WIDTH, GROUP = 512, 32  # of typical layers


def features(offered: Collection[str]) -> list[dict[str, Any]]:
    """Every optional feature we use: whether it is there, and what follows."""
    return [
        {"name": name, "offered": name in offered, "effect": with_it if name in offered else without}
        for name, (with_it, without) in FEATURES.items()
    ]


def limits(caps: Caps) -> list[dict[str, Any]]:
    """Every limit that matters to us, beside what a browser grants."""
    return [
        {"name": name, "offered": caps.limit(name), "browser": BROWSER_LIMITS[name], "decides": what}
        for name, what in LIMITS.items()
    ]


def variants(caps: Caps) -> list[dict[str, Any]]:
    """Where ops can choose between kernels: which one typical shapes get here, and which others there are."""
    measured = read_choices(caps)
    found: dict[str, dict[str, Any]] = {}
    for rows in (1, 128):
        for job in make_planner(_typical(rows), caps, (), tuning=measured).examples:
            best = measured.get(job.key)
            chosen = best if best in job.names else job.names[0]
            found[job.key] = {
                "family": job.family,
                "shape": " ".join(map(str, job.shape)),
                "chosen": chosen,
                "why": "the fastest, measured" if best == chosen else f"the first choice for a {caps.kind.upper()}",
                "others": [name for name in job.names if name != chosen],
            }
    return list(found.values())


def _typical(rows: int) -> Graph:
    """Layers of a language model over one token, as in decoding, or over many, as in a prompt."""
    b = GraphBuilder()
    x, weight = b.tensor(rows, WIDTH), b.tensor(WIDTH, WIDTH)
    linear = b.call("aten.linear.default", x, weight, b.null(), out=b.tensor(rows, WIDTH))
    codes, scales = b.tensor(WIDTH, WIDTH // 2, dtype=DType.UINT8), b.tensor(WIDTH // GROUP, WIDTH)
    group = b.add(Int(GROUP))
    q4 = b.call("et_vk.linear_q4gsw.default", x, codes, scales, group, b.null(), out=b.tensor(rows, WIDTH))
    query, key, value = b.tensor(1, 8, rows, 64), b.tensor(1, 8, 256, 64), b.tensor(1, 8, 256, 64)
    heads = b.tensor(1, 8, rows, 64)
    attended = b.call("et_vk.sdpa.default", query, key, value, b.null(), b.null(), out=heads)
    return b.graph([x, weight, codes, scales, query, key, value], [linear, q4, attended])


# What decides which drivers are found and where compiled shaders are kept.
ENVIRONMENT = (
    "WEBPTE_DEVICE",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "WGPU_BACKEND_TYPE",
    "WGPU_ADAPTER_NAME",
    "XDG_RUNTIME_DIR",
    "MESA_SHADER_CACHE_DIR",
    "MESA_SHADER_CACHE_DISABLE",
)
TIMEOUT = 120
NO_ADAPTER = [
    "Install a driver for the GPU: Vulkan on Linux, Metal and DX12 come with macOS and Windows.",
    "Without a GPU, Mesa's software device does: apt-get install libvulkan1 mesa-vulkan-drivers on Debian.",
    "In a container, make the driver's files and /dev/dri visible; VK_DRIVER_FILES must not hide them.",
]


def examine(self_test: bool = True) -> dict[str, Any]:
    """Everything a bug report should say. `ok` tells whether programs can be run here."""
    found = adapters()
    report: dict[str, Any] = {
        "ok": False,
        "versions": versions(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        "adapters": [asdict(adapter) for adapter in found],
        "features": [],
        "limits": [],
        "variants": [],
        "self_test": None,
        "remedies": [],
    }
    chosen = next((adapter for adapter in found if adapter.chosen), None)
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
    """The self-test in a child process, because a broken driver may take the process with it."""
    source = str(Path(__file__).parents[2])
    paths = [source, os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "webpte.tools.selftest"]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
    except subprocess.TimeoutExpired:
        return _broken(f"the device did not answer within {TIMEOUT} s")
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return _broken(f"the process ended with {child.returncode}: {last}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result


def _broken(problem: str) -> dict[str, Any]:
    """A self-test that did not finish."""
    absent = dict.fromkeys(("round_trip", "copy_bytes_per_second", "seconds"))
    return {"ok": False, "problem": problem, "checks": [], **absent}


def _advice(chosen: AdapterInfo, environment: Mapping[str, str], test: Mapping[str, Any] | None) -> list[str]:
    advice = []
    if chosen.kind == "CPU":
        advice.append("This is a software device: everything runs, slowly. A GPU needs its own driver to be found.")
    if chosen.backend == "OpenGL":
        advice.append(
            "OpenGL is wgpu's last resort and lacks much of WebGPU. Install a Vulkan driver"
            + ("; VK_DRIVER_FILES or VK_ICD_FILENAMES hides those there are." if _hidden(environment) else ".")
        )
    if test is not None and not test["ok"]:
        advice.append("Update the driver; if the self-test still fails, please report it with the block below.")
    return advice


def _hidden(environment: Mapping[str, str]) -> bool:
    return "VK_DRIVER_FILES" in environment or "VK_ICD_FILENAMES" in environment


def bug_report(report: Mapping[str, Any]) -> str:
    """A plain block to paste into an issue."""
    lines = [", ".join(f"{name} {number}" for name, number in report["versions"].items())]
    for adapter in report["adapters"]:
        mark = "*" if adapter["chosen"] else "-"
        lines.append(f"{mark} {adapter['device']} | {adapter['backend']} | {adapter['kind']} | {adapter['driver']}")
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
