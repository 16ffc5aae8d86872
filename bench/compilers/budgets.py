"""Budgets: what the kernels of the main programs may cost on some GPUs. Tests compare with budgets.json.

The gate compares the devices whose compilers are in the system's packages, the nightly run those of the newer Mesa.
Apple's kernels are compared without checks of bounds.

A kernel is over its budget if it spills more registers than recorded, if its occupancy is below the recorded one, or if
it has over 3 % more instructions. A matrix kernel may have more instructions if it does more work: its innermost loop
counts per multiply-add, and the rest of the kernel by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .drivers import DEVICES, Device
from .report import KernelReport, ProgramReport, measure

FILE = Path(__file__).with_name("budgets.json")
PROGRAMS = ("llama256", "smollm2-135m", "cnn-f32")
GATE_DEVICES = ("navi31", "vega10", "dg2")
NIGHT_DEVICES = ("m1", "turing", "ampere")  # m2 has the figures of m1
TOLERANCE = 0.03
Limits = dict[str, float]
Record = dict[str, dict[str, dict[str, Limits]]]  # program -> device -> kernel -> limits


def limits(row: KernelReport, device: str) -> Limits:
    """Return the figures of a kernel that its budget limits."""
    figures = row.figures[device]
    common: Limits = {"spills": figures["spills"], "occupancy": figures["occupancy"]}
    each = row.per_multiply_add(device)
    if each is None:
        return {**common, "instructions": figures["instructions"]}
    outside = figures["instructions"] - figures["loop_instructions"]
    return {**common, "per_multiply_add": round(each, 3), "outside_loop": outside}


def excess(measured: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Return every figure that is over its recorded limit, in words."""
    over = []
    for name, value in measured.items():
        if name not in recorded:
            over.append(f"{name} {value} is not recorded")
        elif name == "occupancy":
            if value < recorded[name]:
                over.append(f"occupancy {value} is below {recorded[name]}")
        elif value > recorded[name] * (1 if name == "spills" else 1 + TOLERANCE):
            over.append(f"{name} {value} exceeds {recorded[name]}")
    return over


def compare(report: ProgramReport, recorded: Record) -> Iterator[str]:
    """Yield the kernels of a report that are over their budget, or have none."""
    for device in report.devices:
        known = recorded.get(report.program, {}).get(device, {})
        for row in report.kernels(device):
            if row.kernel not in known:
                yield f"{report.program} on {device}: {row.kernel} has no budget"
                continue
            for reason in excess(limits(row, device), known[row.kernel]):
                yield f"{report.program} on {device}: {row.kernel}: {reason}"


def devices_of(names: Iterable[str]) -> list[Device]:
    return [DEVICES[name] for name in names]


def read() -> Record:
    record: Record = json.loads(FILE.read_text(encoding="utf-8"))
    return record


def record() -> None:
    """Write budgets.json: the figures of today."""
    measured: Record = {}
    for name in PROGRAMS:
        report = measure(name, devices_of((*GATE_DEVICES, *NIGHT_DEVICES)))
        measured[name] = {
            device: {row.kernel: limits(row, device) for row in sorted(report.kernels(device), key=lambda r: r.kernel)}
            for device in report.devices
        }
    lines = json.dumps(measured, indent=1, sort_keys=True)
    FILE.write_text(lines + "\n", encoding="utf-8")
