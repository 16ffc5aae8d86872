"""Recorded outcomes of each release in results.json, and as a section of docs/models.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.harness.markdown_tables import parts, table

from .releases import RELEASES
from .running import INT8_TOLERANCE, TOLERANCE, Kind, Outcome

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
RESULTS = Path(__file__).with_name("results.json")
HEADING = "## Files of each ExecuTorch release"
TEXT = f"""
Written by `python -m tests.studies versions --write`. Each release of ExecuTorch exports the same programs for Vulkan,
with the
torch that it was made for. Each file runs here, and is compared with eager PyTorch in the release's environment.
*Right* is within {TOLERANCE:.0e} of the largest result, or within {INT8_TOLERANCE:.0e} where activations are int8.
*Not exported*: the release raises an error, and there is no file.
"""
PROGRAMS = {
    "mlp": "MLP with hardswish and clamps",
    "cnn": "CNN",
    "mobilenet": "MobileNetV3 block",
    "int8_cnn": "int8 CNN",
    "int8_linear": "int8 linear",
    "int4": "4-bit weights",
    "int8_int4": "8-bit activations, 4-bit weights",
    "attention": "attention",
    "transformer": "LayerNorm and GELU",
    "embedding": "embedding and softmax",
}
Results = Mapping[str, Mapping[str, Outcome]]


def known() -> dict[str, dict[str, Outcome]]:
    """Return the outcomes that are recorded, by release and program."""
    if not RESULTS.exists():
        return {}
    recorded = json.loads(RESULTS.read_text())
    return {
        version: {
            name: Outcome(Kind(result["kind"]), result["error"], result["reason"]) for name, result in rows.items()
        }
        for version, rows in recorded.items()
    }


def record(results: Results) -> None:
    rows = {v: {name: result._asdict() for name, result in results[v].items()} for v in RELEASES if v in results}
    for result in (result for row in rows.values() for result in row.values()):
        result["error"] = None if result["error"] is None else float(f"{result['error']:.1e}")
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def section(results: Results) -> str:
    head = ["ExecuTorch", "torch", *PROGRAMS.values()]
    rows = [
        [version, release.torch, *(results[version][name].kind for name in PROGRAMS)]
        for version, release in RELEASES.items()
        if version in results
    ]
    reasons = [
        f"- {version}, {PROGRAMS[name]}, {result.kind}: {' '.join(result.reason.split())}"
        for version, row in results.items()
        for name, result in row.items()
        if result.kind not in (Kind.RIGHT, Kind.ON_CPU)
    ]
    return "\n".join([HEADING, TEXT, table(head, rows), *reasons, *[""] * bool(reasons)])


def write(results: Results) -> None:
    before, _, after = parts(DOCS.read_text(), HEADING)
    DOCS.write_text(before + section(results) + after)
