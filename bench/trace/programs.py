"""Summarize the memory accesses of language models: `python -m bench.trace.programs [--write]`.

Every program runs on every configuration of the device: a prompt of 255 tokens, then a step that decodes one. Each pair
has its own process, because a configuration is an environment variable. `--write` stores the figures in results.json
and puts the table of all stored ones into docs/compilers.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import webpte
from bench.compilers.models import language_model
from bench.compilers.programs import PREFILL_TOKENS
from webpte.bundles.program_kinds import _call as engine_call
from webpte.device.adapter import RESTRICTIONS_VARIABLE
from webpte.fusion.batching import with_sampled_slots
from webpte.fusion.llm_rewrites import SAMPLING_WORDS

from .analyse import SUBGROUPS, Figures, by_variable
from .run import TracedCall, device_for_traces, trace_call

PAGE = Path(__file__).parents[2] / "docs" / "compilers.md"
RESULTS = Path(__file__).with_name("results.json")
BEGIN, END = "<!-- memory: begin -->", "<!-- memory: end -->"
PROGRAMS = ("llama256", "smollm2-135m")
CONFIGURATIONS = ("", "gpu", "gpu,no-subgroups", "gpu,few-registers")
# To trace: neighbors, which run at the same time. In decode as many as share a segment: 2 columns of f16 scales each.
WORKGROUPS = {"prefill": 2, "decode": 16}
SCALES = "scales"  # how the variables of a kernel with the scales of quantized weights begin
NORMS = "norm"  # the variable with the weights of the norm that a product includes
TABLES = (NORMS, "cosine", "sine")  # constants that are not matrices: all workgroups read them
COLUMNS = ("requested", "codes", "scales", "x", "norms", "others", "stores", "caches")  # of the table, from Summary


class Access(NamedTuple):
    """The accesses of a kernel to one of its variables."""

    kernel: str
    variable: str
    kind: str  # constant, state, activation or workgroup
    direction: str
    weight: int  # needed bytes of all workgroups and dispatches of this kernel
    requested: float  # bytes relative to the needed ones, after those of an instruction are merged
    use: float  # of segments, by all traced workgroups
    share: float  # of segments, by an instruction
    ways: float  # of bank conflicts


def accesses(call: TracedCall, workgroups: int) -> Iterator[Access]:
    """Yield the accesses of a call by kernel and variable. Figures of subgroups are the worst of all widths."""
    for label, trace in call.traces.items():
        bindings = {site.variable.name: site.variable for site in trace.sites}
        for figures in by_variable(trace):
            variable = bindings[figures.variable]
            if variable.space == "uniform":
                continue
            kind = "workgroup" if variable.space == "workgroup" else call.kinds[label][variable.binding]
            repeats = max(call.workgroups[label] / workgroups, 1) * call.dispatches[label]
            yield _access(label, kind, figures, repeats)


def _access(label: str, kind: str, figures: Figures, repeats: float) -> Access:
    widths = [figures.by_subgroup[width] for width in SUBGROUPS]
    return Access(
        label,
        figures.variable,
        kind,
        figures.direction,
        int(figures.unique * repeats),
        figures.cached * figures.across,
        figures.use,
        min(width.share for width in widths),
        max(width.ways for width in widths),
    )


class Summary(NamedTuple):
    """The figures of one program on one configuration. Shares are those of segments by an instruction."""

    requested: float  # of quantized weights and their scales in decode
    codes: float  # use of segments
    scales: float
    x: float  # share, inputs of decode's layers with weights
    norms: float  # share, weights of norms in decode
    others: float  # share, what else decode loads: queries, tables, residuals
    stores: float  # share, results of decode
    caches: float  # share, the worst access of decode and prefill
    ways: float  # of bank conflicts in prefill
    worst: str  # the variable with the most ways


def summary(decode: Sequence[Access], prefill: Sequence[Access]) -> Summary:
    """Return the figures of a program from the accesses of its two phases."""
    constants = [a for a in decode if a.kind == "constant" and a.variable not in TABLES]
    codes = [a for a in constants if not a.variable.startswith(SCALES)]
    scales = [a for a in constants if a.variable.startswith(SCALES)]
    caches = [a for a in (*decode, *prefill) if a.kind == "state"]
    layers = {a.kernel for a in constants}
    loads = [a for a in decode if a.direction == "load" and a.kind in ("constant", "activation") and a not in constants]
    x = [a for a in loads if a.variable == "x" and a.kernel in layers]
    norms = [a for a in loads if a.variable == NORMS]
    worst = max((a for a in prefill if a.kind == "workgroup"), key=lambda a: a.ways, default=None)
    name = "" if worst is None or worst.ways <= 1 else f"{worst.kernel.partition('[')[0]}: {worst.variable}"
    return Summary(
        _mean([(a.requested, a.weight) for a in constants]),
        _mean([(a.use, a.weight) for a in codes]),
        _mean([(a.use, a.weight) for a in scales]),
        _share(x),
        _share(norms),
        _share([a for a in loads if a not in x and a not in norms]),
        _share([a for a in decode if a.direction == "store" and a.kind == "activation"]),
        min(a.share for a in caches),
        1.0 if worst is None else worst.ways,
        name,
    )


def _mean(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)


def _share(accesses: Sequence[Access]) -> float:
    """Return the share of the segments that instructions touch; 1 without accesses."""
    moved = [a.weight * a.requested for a in accesses]
    segments = sum(nbytes / a.share for nbytes, a in zip(moved, accesses, strict=True))
    return sum(moved) / segments if segments else 1.0


def traced(name: str) -> dict[str, list[Access]]:
    """Run the phases of a language model on the device of this process, and return their accesses."""
    with device_for_traces(), webpte.load(language_model(name), tune="off") as program:
        method = program.method("forward", functools.partial(with_sampled_slots, slots=1), lazy=True)
        calls = {"prefill": _call(PREFILL_TOKENS, 0, 0), "decode": _call(1, 1, PREFILL_TOKENS)}
        result = {}
        for phase, arguments in calls.items():
            call = trace_call(method, arguments, workgroups=WORKGROUPS[phase])
            for label, reason in call.failures.items():
                print(f"{label}: not traced: {reason}", file=sys.stderr)
            result[phase] = list(accesses(call, WORKGROUPS[phase]))
        return result


def _call(rows: int, decoded: int, position: int) -> list[Any]:
    """Return the arguments of a step whose tokens follow `position` others of the sequence."""
    arguments = list(engine_call(rows, decoded, 1, len(SAMPLING_WORDS), 0))
    arguments[0] = np.arange(rows, dtype=np.int64)[None]
    arguments[1] = np.stack([np.zeros(rows), position + np.arange(rows)], 1).astype(np.int32)
    arguments[3] = np.array([rows - 1], np.int32)
    return arguments


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| program | `WEBPTE_DEVICE` | weights requested | use: codes | scales "
        "| share: x | norms | other loads | stores | caches | bank conflicts |",
        "|---|---|" + "--:|" * len(COLUMNS) + "---|",
    ]
    for row in rows:
        device = f"`{row['device']}`" if row["device"] else "–"
        conflicts = f"{row['ways']:.0f}-way" + (f" (`{row['worst']}`)" if row["worst"] else "")
        figures = " | ".join(f"{row[name]:.2f}" for name in COLUMNS)
        lines.append(f"| {row['program']} | {device} | {figures} | {conflicts} |")
    return "\n".join(lines)


def page() -> str:
    """Return docs/compilers.md with the table of the stored figures."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table(json.loads(RESULTS.read_text(encoding='utf-8')))}\n\n{END}{after}"


def _store(rows: Sequence[dict[str, Any]]) -> None:
    """Replace the stored figures of these programs and configurations."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    by_key = {(row["program"], row["device"]): row for row in (*stored, *rows)}
    text = ",\n".join(json.dumps(by_key[key]) for key in sorted(by_key))
    RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.trace.programs", description=(__doc__ or "").split(":")[0])
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--device", nargs="+", default=CONFIGURATIONS, help="values of WEBPTE_DEVICE")
    parser.add_argument("--write", action="store_true", help="store the figures, and write docs/compilers.md")
    parser.add_argument("--json", action="store_true", help="print the accesses of one program on this device")
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps(traced(options.programs[0])))
        return 0
    rows = []
    for name in options.programs:
        for configuration in options.device:
            phases = _in_process(name, configuration)
            figures = summary(phases["decode"], phases["prefill"])._asdict().items()
            rounded = {key: value if isinstance(value, str) else round(value, 3) for key, value in figures}
            rows.append({"program": name, "device": configuration, **rounded})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if options.write:
                _store(rows)
    print(table(rows))
    return 0


def _in_process(name: str, configuration: str) -> dict[str, list[Access]]:
    command = [sys.executable, "-m", "bench.trace.programs", name, "--json"]
    environment = {**os.environ, RESTRICTIONS_VARIABLE: configuration}
    data = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    return {phase: [Access(*row) for row in rows] for phase, rows in data.items()}


if __name__ == "__main__":
    sys.exit(main())
