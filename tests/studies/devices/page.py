"""docs/devices.md, made from docs/devices.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.harness.configurations import CONFIGURATIONS

from .runs import OUTCOMES, PROJECT, suites

RESULTS = PROJECT / "docs" / "devices.json"
PAGE = PROJECT / "docs" / "devices.md"
NAMES = {
    "max-storage-buffers-per-shader-stage": "storage buffers",
    "max-storage-buffer-binding-size": "binding, MiB",
    "max-compute-invocations-per-workgroup": "invocations",
    "max-compute-workgroup-storage-size": "shared, KiB",
}
_SCALES = {"max-storage-buffer-binding-size": 20, "max-compute-workgroup-storage-size": 10}

INTRODUCTION = """# Devices

This page lists the test results on two software drivers, one of them also with reduced limits and features. Generated
by `python -m tests.studies devices --write`, which takes tens of minutes; `--configurations` and `--suites` select a
part, and
`pytest --configuration NAME` runs any test on a configuration.

Set `WEBPTE_DEVICE` to run a program on a restricted device ([Configuration](configuration.md#environment-variables)).
`webpte doctor` shows the result, and `webpte.load(..., limits={...})` sets single limits.
"""


def read_results() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"devices": {}, "results": []}
    return results


def merged(old: Mapping[str, Any], device: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new result in place of an old one; what is not a configuration any more goes."""
    kept = {(row["configuration"], row["suite"]): row for row in (*old["results"], result)}
    order = [(name, suite) for name in CONFIGURATIONS for suite in suites(name)]
    known = {**old["devices"], result["configuration"]: device}
    return {
        "devices": {name: known[name] for name in CONFIGURATIONS if name in known},
        "results": [kept[key] for key in order if key in kept],
    }


def missing(result: Mapping[str, Any]) -> list[str]:
    """Return what was never run."""
    ran = {(row["configuration"], row["suite"]) for row in result["results"]}
    return [f"{name}, {suite}" for name in CONFIGURATIONS for suite in suites(name) if (name, suite) not in ran]


def page(result: Mapping[str, Any]) -> str:
    lines = [INTRODUCTION, *_device_table(result["devices"]), "", *_result_table(result["results"])]
    if absent := missing(result):
        lines += ["", "Not run yet:", "", *(f"- {pair}" for pair in absent)]
    return "\n".join([*lines, ""])


def _device_table(devices: Mapping[str, Any]) -> list[str]:
    lines = [
        f"| configuration | what it is | device and driver | features | subgroup | {' | '.join(NAMES.values())} |",
        "|---|---|---|---|--:|" + "--:|" * len(NAMES),
    ]
    for name, facts in devices.items():
        limits = [facts["limits"][limit] >> _SCALES.get(limit, 0) for limit in NAMES]
        device = f"{facts['device']}, {facts['driver']}"
        features = ", ".join(facts["features"]) or "none"
        numbers = " | ".join(map(str, (facts["subgroup"] or "none", *limits)))
        lines.append(f"| {name} | {CONFIGURATIONS[name].about} | {device} | {features} | {numbers} |")
    return lines


def _result_table(results: list[dict[str, Any]]) -> list[str]:
    lines = [f"| configuration | suite | {' | '.join(OUTCOMES)} | seconds |", "|---|---|--:|--:|--:|--:|"]
    notes = []
    for row in results:
        counts = " | ".join(str(row["counts"][outcome]) for outcome in OUTCOMES)
        lines.append(f"| {row['configuration']} | {row['suite']} | {counts} | {row['seconds']} |")
        where = f"{row['configuration']}, {row['suite']}"
        notes += [
            f"- {where}, {count} times: `{reason.replace('`', '')}`" for reason, count in sorted(row["reasons"].items())
        ]
    return [*lines, "", *(["Not passed:", "", *notes] if notes else ["Nothing failed and nothing was skipped."])]


def write(result: Mapping[str, Any], folder: Path = PAGE.parent) -> None:
    (folder / RESULTS.name).write_text(json.dumps(result, indent=1) + "\n")
    (folder / PAGE.name).write_text(page(result))
