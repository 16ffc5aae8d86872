"""What this machine has, what of it programs can use, and whether it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..device import AdapterInfo, adapter_caps, adapters
from .capabilities import features, limits, variants
from .machine import versions

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
