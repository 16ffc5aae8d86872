"""Suites of tests on configurations of devices, each in a process of its own, and how they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.support.harness.configurations import CONFIGURATIONS

PROJECT = Path(__file__).parents[3]
OUTCOMES = ("passed", "failed", "skipped")
# What pytest runs; the catalog is run check by check instead, because one of its tests is a whole suite.
TESTS = {
    "op cases": ("--every-case", "tests/gpu/test_cases.py::test_matches_reference"),
    "models": (
        "tests/contract/test_programs.py",
        "tests/contract/test_llamas.py",
        "tests/contract/test_state.py",
        "tests/contract/test_llm.py",
        "tests/contract/test_real_widths.py",
        "tests/gpu/test_xnnpack.py",
    ),
}
SUITES = ("op cases", "catalog", "models")


def suites(configuration: str) -> tuple[str, ...]:
    """Return those that a configuration makes a difference to."""
    return ("models",) if CONFIGURATIONS[configuration].bursts else SUITES


_DESCRIBE = """
import json, wgpu
from webpte.device import adapter_caps
caps, info = adapter_caps(), wgpu.gpu.request_adapter_sync(power_preference="high-performance").info
facts = {"device": info["device"], "driver": info["description"], "kind": caps.kind, "subgroup": caps.subgroup}
print(json.dumps(facts | {"features": sorted(caps.features), "limits": dict(caps.limits)}))
"""


@dataclass(frozen=True)
class Result:
    """A suite on a configuration."""

    configuration: str
    suite: str
    counts: dict[str, int]
    reasons: dict[str, int]  # why tests failed or were skipped, and how many
    seconds: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(configuration: str, suite: str) -> Result:
    started = time.perf_counter()
    ended = _catalog(configuration) if suite == "catalog" else _pytest(configuration, TESTS[suite])
    counts = Counter(outcome for outcome, _ in ended)
    reasons = Counter(reason for outcome, reason in ended if outcome != "passed")
    counted = {outcome: counts[outcome] for outcome in OUTCOMES}
    return Result(configuration, suite, counted, dict(reasons), round(time.perf_counter() - started))


def describe(configuration: str) -> dict[str, Any]:
    """Return the device as programs see it."""
    command = [sys.executable, "-c", _DESCRIBE]
    asked = subprocess.run(command, env=_environment(configuration), capture_output=True, text=True, check=True)
    results: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    if not results["driver"] and CONFIGURATIONS[configuration].driver is not None:
        version = subprocess.run(["chromium", "--version"], capture_output=True, text=True)
        results["driver"] = f"of {version.stdout.strip()}"
    return results


def _environment(configuration: str) -> dict[str, str]:
    return os.environ | CONFIGURATIONS[configuration].environment


def _pytest(configuration: str, tests: tuple[str, ...]) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = [
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            "--configuration",
            configuration,
        ]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
        if not report.exists():
            return [("failed", f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}")]
        return [_outcome(case) for case in ElementTree.parse(report).iter("testcase")]


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for tag, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (result := case.find(tag)) is not None:
            message = " ".join(result.get("message", "").split())[:200]
            return outcome, message if outcome == "skipped" else f"{case.get('name')}: {message}"
    return "passed", ""


def _catalog(configuration: str) -> list[tuple[str, str]]:
    command = [sys.executable, "-m", "tests.studies.catalog.run", "--json"]
    done = subprocess.run(command, cwd=PROJECT, env=_environment(configuration), capture_output=True, text=True)
    if not done.stdout.startswith("["):
        return [("failed", f"the catalog ended with {done.returncode}: {done.stderr[-500:]}")]
    outcomes = {"passed": "passed", "failed": "failed", "refused": "skipped"}
    return [(outcomes[row["outcome"]], f"{row['case']}: {row['reason']}"[:200]) for row in json.loads(done.stdout)]
