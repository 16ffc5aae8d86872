"""The figures of all kernels of a program on all devices: measured, as JSON, as text, and as tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .drivers import CHECKED, DEVICES, VENDORS, Device, Source, caps, compile_all, versions
from .programs import Phases, multiply_adds, phases, program_path

RESULTS = Path(__file__).with_name("results")
Figures = dict[str, int]


@dataclass
class KernelReport:
    """A kernel of a plan: its uses (dispatches and workgroups, by phase), and its figures by device."""

    kernel: str
    workgroup: int
    multiply_adds: int | None  # of an iteration of its innermost loop
    phases: dict[str, list[int]]
    figures: dict[str, Figures] = field(default_factory=dict)

    def per_multiply_add(self, device: str) -> float | None:
        """Return the instructions of the innermost loop of a matrix kernel, for one multiply-add."""
        instructions = self.figures[device].get("loop_instructions", 0)
        return instructions / self.multiply_adds if self.multiply_adds and instructions else None


@dataclass
class PlanReport:
    """The kernels that some devices run: those with the same plan."""

    devices: list[str]
    kernels: list[KernelReport]


@dataclass
class ProgramReport:
    """A program on all devices. Counts of dispatches are those of the real number of layers."""

    program: str
    layers_exported: int
    layers: int
    versions: dict[str, str]
    plans: list[PlanReport]

    def kernels(self, device: str) -> list[KernelReport]:
        return next((plan.kernels for plan in self.plans if device in plan.devices), [])

    @property
    def devices(self) -> list[str]:
        present = {name for plan in self.plans for name in plan.devices}
        return [name for name in DEVICES if name in present]


def measure(name: str, devices: Iterable[Device]) -> ProgramReport:
    """Plan a program for each device, compile its kernels, and return the figures."""
    path = program_path(name)
    devices = list(devices)
    plans: list[PlanReport] = []
    uses = Phases()
    for device in devices:
        uses = phases(name, path, caps(device))
        kernels = list(uses.uses)
        figures = compile_all(device, [Source.of(kernel) for kernel in kernels])
        rows = [
            KernelReport(
                kernel.label,
                kernel.workgroup,
                multiply_adds(kernel),
                {phase: [use.dispatches, use.workgroups] for phase, use in uses.uses[kernel].items()},
            )
            for kernel in kernels
        ]
        plan = next((plan for plan in plans if _same(plan.kernels, rows)), None)
        if plan is None:
            plan = PlanReport([], rows)
            plans.append(plan)
        plan.devices.append(device.name)
        for row, values in zip(plan.kernels, figures, strict=True):
            row.figures[device.name] = values
    exported, real = uses.layers
    return ProgramReport(name, exported, real, versions(devices), plans)


def merged(report: ProgramReport, recorded: ProgramReport) -> ProgramReport:
    """Return the recorded report with the devices of a new one, whose figures replace those of the same devices."""
    plans = []
    for plan in recorded.plans:
        devices = [name for name in plan.devices if name not in report.devices]
        rows = [replace(row, figures={name: row.figures[name] for name in devices}) for row in plan.kernels]
        if devices:
            plans.append(PlanReport(devices, rows))
    for plan in report.plans:
        known = next((other for other in plans if _same(other.kernels, plan.kernels)), None)
        if known is None:
            plans.append(plan)
            continue
        known.devices += plan.devices
        for row, new in zip(known.kernels, plan.kernels, strict=True):
            row.figures |= new.figures
    return replace(report, versions=dict(sorted({**recorded.versions, **report.versions}.items())), plans=plans)


def _same(some: Sequence[KernelReport], others: Sequence[KernelReport]) -> bool:
    def identity(row: KernelReport) -> object:
        return row.kernel, row.workgroup, row.phases

    return [identity(row) for row in some] == [identity(row) for row in others]


# ---------------------------------------------------------------- files


def to_json(report: ProgramReport) -> str:
    """Return a document that is the same for the same figures: a line for each kernel and device."""
    columns: dict[str, list[str]] = {}
    plans = []
    for plan in report.plans:
        rows = []
        for row in plan.kernels:
            figures = {}
            for device in sorted(row.figures):
                names = columns.setdefault(DEVICES[device].vendor, list(row.figures[device]))
                figures[device] = [row.figures[device][name] for name in names]
            rows.append({**asdict(row), "figures": figures})
        plans.append({"devices": sorted(plan.devices), "kernels": rows})
    document = {**asdict(report), "columns": dict(sorted(columns.items())), "plans": plans}
    text = json.dumps(document, indent=1)
    return re.sub(r"\[\s+((?:-?\d+|\"[^\"]*\")(?:,\s+(?:-?\d+|\"[^\"]*\"))*)\s+\]", _on_a_line, text) + "\n"


def _on_a_line(match: re.Match[str]) -> str:
    return "[" + re.sub(r",\s+", ", ", match[1]) + "]"


def from_json(text: str) -> ProgramReport:
    document: dict[str, Any] = json.loads(text)
    columns = document.pop("columns")
    plans = []
    for plan in document.pop("plans"):
        rows = []
        for row in plan["kernels"]:
            figures = {
                device: dict(zip(columns[DEVICES[device].vendor], values, strict=True))
                for device, values in row.pop("figures").items()
            }
            rows.append(KernelReport(**row, figures=figures))
        plans.append(PlanReport(plan["devices"], rows))
    return ProgramReport(**document, plans=plans)


def result_path(name: str) -> Path:
    return RESULTS / f"{name}.json"


def stored() -> list[ProgramReport]:
    """Return the reports in the repository, by name."""
    return [from_json(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def differences(report: ProgramReport, recorded: ProgramReport) -> tuple[list[str], list[str]]:
    """Return the devices whose figures are not the recorded ones, and those that another Mesa compiled for."""
    different, other = [], []
    for device in report.devices:
        package = VENDORS[DEVICES[device].vendor].mesa
        if _upstream(report.versions[package]) != _upstream(recorded.versions.get(package, "")):
            other.append(device)
        elif _of_device(report, device) != _of_device(recorded, device):
            different.append(device)
    return different, other


def _upstream(version: str) -> str:
    """Return a version of Mesa without Debian's revision."""
    return version.partition("-")[0]


def _of_device(report: ProgramReport, device: str) -> list[tuple[object, ...]]:
    return [(row.kernel, row.workgroup, row.phases, row.figures[device]) for row in report.kernels(device)]


# ---------------------------------------------------------------- text

_DULL = re.compile(r"|\w+=(?:False|None|\(\)|f32|f32x2|f32x4|)")


def short(label: str) -> str:
    """Return a kernel's label without the flags that have their usual value."""
    name, _, flags = label.partition("[")
    kept = [flag.removesuffix("=True") for flag in flags.removesuffix("]").split(",") if not _DULL.fullmatch(flag)]
    return f"{name}[{','.join(kept)}]" if kept else name


def cell(row: KernelReport, device: str) -> str:
    """Return the main figures: registers, occupancy, instructions (with checks of bounds), spills if there are any."""
    figures = row.figures[device]
    parts = [str(figures[name]) for name in ("registers", "occupancy", "instructions") if name in figures]
    if (checked := figures.get(f"{CHECKED}instructions")) is not None:
        parts[-1] += f" ({checked})"
    return " · ".join(parts) + (f" · **{figures['spills']} spills**" if figures["spills"] else "")


def text_table(report: ProgramReport) -> str:
    """Return the report for a terminal."""
    lines = []
    for plan in report.plans:
        devices = [name for name in DEVICES if name in plan.devices]
        names = sorted({phase for row in plan.kernels for phase in row.phases})
        head = ["kernel", *names, *devices]
        table = [head]
        for row in plan.kernels:
            uses = ["x".join(map(str, row.phases[phase])) if phase in row.phases else "" for phase in names]
            cells = []
            for device in devices:
                each = row.per_multiply_add(device)
                cells.append(cell(row, device).replace("*", "") + ("" if each is None else f" · {each:.2f}/fma"))
            table.append([short(row.kernel), *uses, *cells])
        widths = [max(len(line[i]) for line in table) for i in range(len(head))]
        lines += ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in table]
    return "\n".join(line.rstrip() for line in lines)


CSV_FIGURES = ("registers", "occupancy", "instructions", f"{CHECKED}instructions", "spills")
CSV_HEAD = ("program", "kernel", "phase", "dispatches", "workgroups", "device", *CSV_FIGURES, "per_multiply_add")


def csv_table(reports: Iterable[ProgramReport]) -> str:
    """Return a row for each kernel, phase and device of each report, for spreadsheets and SQL."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for report in reports:
        for device in report.devices:
            for row in report.kernels(device):
                writer.writerows(_csv_rows(report.program, row, device))
    return text.getvalue()


def _csv_rows(program: str, row: KernelReport, device: str) -> Iterator[tuple[object, ...]]:
    each = row.per_multiply_add(device)
    figures = [row.figures[device].get(name, "") for name in CSV_FIGURES]
    for phase, (dispatches, workgroups) in row.phases.items():
        uses = (phase, dispatches, workgroups)
        yield program, short(row.kernel), *uses, device, *figures, "" if each is None else f"{each:.2f}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
