"""Write docs/results.md from the reports in docs/results: python -m docs.make_results

tests/project/test_results_page.py fails if the page is out of date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "results.md"
RESULTS = HERE / "results"
SCHEMA = RESULTS / "schema.json"
HEAD = """# Measured adapters

This page compares reports of `webpte bench --report` and of the page that `webpte bundle --bench` writes. To add your
GPU, see [send numbers](performance-guide.md#send-numbers). The reports are files of `docs/results`;
`python -m docs.make_results` writes this page.

{count} Rates of software adapters depend on the CPU and its load. They say nothing about GPUs.

## Correctness

*Checks* are small graphs against NumPy. *Tokens* are the greedy tokens of random 4-bit decoders that equal NumPy's.

| adapter | runtime | backend, driver | subgroup | checks | tokens |
|---|---|---|---|---|---|
{correctness}

## Rates

*Decode* is one token per submit after 255 tokens, *prefill* a prompt of 255 tokens: medians of the decoder of width
2048, or of the widest that was measured. *Weights* is the rate at which decode reads weights. *Dispatch* is the cost
of a further small dispatch in a submit, *submit* the median time of a submit of one dispatch with the wait for it.

| adapter | copy GB/s | FMA GFLOP/s | dispatch µs | submit µs | decoder | decode tok/s | weights GB/s | prefill tok/s |
|---|---|---|---|---|---|---|---|---|
{rates}

## Reports

| adapter | date | versions | system | other load | file |
|---|---|---|---|---|---|
{reports}
"""


def reports() -> dict[str, dict[str, Any]]:
    """Return the reports by name of their file: GPUs before software."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json") if path != SCHEMA}
    return dict(sorted(found.items(), key=lambda item: (item[1]["software"], item[0])))


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    gpus = sum(not report["software"] for report in found.values())
    count = f"There are reports of {gpus} GPUs and {len(found) - gpus} software adapters."
    return HEAD.format(
        count=count if gpus else "There is no report of a GPU yet.",
        correctness="\n".join(map(_correctness, found.values())),
        rates="\n".join(map(_rates, found.values())),
        reports="\n".join(_report(name, report) for name, report in found.items()),
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _adapter(report: Mapping[str, Any]) -> str:
    place = " in a browser" if report["runtime"] == "browser" else ""
    return f"{report['adapter']['name']}{place}{' **(software)**' if report['software'] else ''}"


def _correctness(report: Mapping[str, Any]) -> str:
    adapter, checks = report["adapter"], report["checks"]
    tokens = [model["tokens"] or {"equal": 0, "n": 0} for model in report["models"]]
    return _row(
        _adapter(report),
        report["versions"].get("browser", f"Python {report['versions'].get('python', '')}"),
        ", ".join(filter(None, (adapter["backend"], adapter["driver"]))),
        str(report["subgroup"] or "none"),
        f"{sum(check['ok'] for check in checks)} of {len(checks)}",
        f"{sum(each['equal'] for each in tokens)} of {sum(each['n'] for each in tokens)}",
    )


def _rates(report: Mapping[str, Any]) -> str:
    probes = report["probes"]
    models = [model for model in report["models"] if model["decode"] and model["prefill"]]
    model = max(models, key=lambda each: each["width"], default=None)
    measured = ["none", "", "", ""]
    if model is not None:
        decode, prefill = model["decode"], model["prefill"]
        measured = [
            f"{model['width']} x {model['layers']}",
            f"{_number(decode['tokens_per_second'])} (n = {decode['n']})",
            _number(decode["weight_bytes_per_second"] / 1e9),
            f"{_number(prefill['tokens_per_second'])} (n = {prefill['n']})",
        ]
    return _row(
        _adapter(report),
        _number(probes["copy_bytes_per_second"] / 1e9),
        _number(probes["flops_per_second"] / 1e9),
        _number(probes["dispatch_seconds"] * 1e6),
        f"{_number(probes['submit']['median'] * 1e6)} (n = {probes['submit']['n']})",
        *measured,
    )


def _report(name: str, report: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{each} {number}" for each, number in report["versions"].items())
    link = f"[{name}.json](https://github.com/webpte/webpte/blob/main/docs/results/{name}.json)"
    return _row(_adapter(report), report["date"], versions, report["os"], report["load"] or "unknown or none", link)


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


if __name__ == "__main__":
    PAGE.write_text(page(reports()), "utf-8")
