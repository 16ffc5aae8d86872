"""Write the tables of docs/compilers.md from bench/compilers/results: python -m docs.make_compilers

tests/project/test_figures.py fails if the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.compilers.drivers import DEVICES, VENDORS
from bench.compilers.report import KernelReport, ProgramReport, cell, markdown_table, short, stored, totals

PAGE = Path(__file__).with_name("compilers.md")
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
TITLES = {
    "llama256": "A small Llama (256 wide, 4 layers)",
    "smollm2-135m": "SmolLM2-135M",
    "llama-3.2-1b": "Llama 3.2 1B",
    "qwen3-0.6b": "Qwen3 0.6B",
    "gemma-3-1b": "Gemma 3 1B",
    "minilm": "MiniLM (f32)",
    "cnn-f32": "CNN (f32)",
    "cnn-int8": "CNN (int8)",
    "whisper-tiny": "Whisper tiny (f32)",
}
LOOP_FLAGS = {"a_width", "bits", "columns", "norm_type", "packed", "rows", "tile", "weights", "words"}
LLM_PHASES = ("decode", "prefill")


def text() -> str:
    """Return the page with the tables of the stored reports."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    reports = {report.program: report for report in stored()}
    ordered = [reports[name] for name in TITLES if name in reports]
    return f"{before}{BEGIN}\n\n{_tables(ordered)}\n\n{END}{after}"


def _tables(reports: list[ProgramReport]) -> str:
    return "\n\n".join([_devices(reports), _matrix_products(reports), *(_program(report) for report in reports)])


def _devices(reports: list[ProgramReport]) -> str:
    lines = ["| device | GPU | compiler | Mesa |", "|---|---|---|---|"]
    for name in DEVICES:
        vendor = VENDORS[DEVICES[name].vendor]
        mesa = sorted({report.versions[vendor.mesa] for report in reports if name in report.devices})
        if mesa:
            lines.append(f"| {name} | {DEVICES[name].title} | {vendor.driver} | {', '.join(mesa)} |")
    wgpu = ", ".join(sorted({report.versions["wgpu"] for report in reports}))
    table = "\n".join(lines)
    return f"## Devices\n\nCompiled with wgpu {wgpu}.\n\n{table}"


def _matrix_products(reports: list[ProgramReport]) -> str:
    """Return the instructions per multiply-add of all matrix kernels. What they do with a result does not matter."""
    devices = [name for name in DEVICES if any(name in report.devices for report in reports)]
    rows: dict[str, dict[str, str]] = {}
    for report in reports:
        for device in report.devices:
            for row in report.kernels(device):
                each = row.per_multiply_add(device)
                if each is not None:
                    rows.setdefault(f"`{_tile(row.kernel)}`", {}).setdefault(device, f"{each:.2f}")
    table = markdown_table(
        ("kernel", *devices), ([name, *(cells.get(d, "–") for d in devices)] for name, cells in sorted(rows.items()))
    )
    return (
        "## Instructions per multiply-add\n\nInstructions of the innermost loop, divided by its multiply-adds: the "
        f"weights of an iteration times the rows of the input. Waits and hints are not counted.\n\n{table}"
    )


def _tile(label: str) -> str:
    """Return the name of a kernel with the flags that make its innermost loop."""
    name, _, flags = short(label).removesuffix("]").partition("[")
    kept = [flag for flag in flags.split(",") if flag.partition("=")[0] in LOOP_FLAGS]
    return f"{name}[{','.join(kept)}]" if kept else name


def _program(report: ProgramReport) -> str:
    phases = _phases(report)
    parts = [f"## {TITLES[report.program]}"]
    if report.layers != report.layers_exported:
        parts.append(
            f"Exported with {report.layers_exported} layers. Counts are scaled to {report.layers} layers: a dispatch "
            "that occurs once per exported layer counts once per layer."
        )
    parts.append(_totals(report, phases))
    for plan in report.plans:
        rows = [row for row in plan.kernels if any(phase in row.phases for phase in phases)]
        for vendor in VENDORS:
            devices = [name for name in DEVICES if name in plan.devices and DEVICES[name].vendor == vendor]
            if devices:
                parts.append(markdown_table(("kernel", *phases, *devices), _rows(rows, phases, devices)))
    return "\n\n".join(parts)


def _totals(report: ProgramReport, phases: list[str]) -> str:
    """Return a table of the instructions of all workgroups, each instruction counted once, in millions."""
    rows = []
    for phase in phases:
        sums = totals(report, phase)
        dispatches, workgroups, _ = sums[report.devices[0]]
        rows.append([phase, f"{dispatches:,}", f"{workgroups:,}", *(f"{sums[d][2] / 1e6:,.2f}" for d in sums)])
    head = ("phase", "dispatches", "workgroups", *(f"{device}, 10⁶ instructions" for device in report.devices))
    return markdown_table(head, rows)


def _phases(report: ProgramReport) -> list[str]:
    present = dict.fromkeys(phase for plan in report.plans for row in plan.kernels for phase in row.phases)
    return [phase for phase in present if phase in LLM_PHASES] or list(present)


def _rows(rows: list[KernelReport], phases: list[str], devices: list[str]) -> Iterator[list[str]]:
    for row in rows:
        uses = [" × ".join(f"{count:,}" for count in row.phases[p]) if p in row.phases else "" for p in phases]
        yield [f"`{short(row.kernel)}`", *uses, *(cell(row, device) for device in devices)]


def main() -> int:
    PAGE.write_text(text(), encoding="utf-8")
    print(f"docs/{PAGE.name}: {len(text())} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
