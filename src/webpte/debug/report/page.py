"""Render report data as one HTML file that needs no network, and draw the graph of a method for Graphviz.

Names in the file may be hostile. The template escapes everything, the script writes only text, and the page's content
security policy allows no other script and no loads.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jinja2

from ...text import sanitize, size
from .calls import ArgumentData, BufferData, CallRow, ValueRow
from .data import ConstantData, MethodReport


def short_name(name: str) -> str:
    """Return the short name of an op: ``add.Tensor`` for ``aten.add.Tensor``, ``cat`` for ``aten::cat.out``."""
    _, kernel, rest = name.rpartition("::")
    if not kernel and (rest.count(".") > 1 or rest.startswith("webpte.")):
        rest = rest.split(".", 1)[1]
    return rest.removesuffix(".default").removesuffix(".out") or name


def type_text(value: ValueRow) -> str:
    """Return the type of a value of a report, ``f32[1, ≤255, 576]``. A dim with ≤ may be smaller."""
    if value["dims"] is None:
        return str(value["dtype"])
    marks = zip(value["dims"], value["dynamic"], strict=True)
    return f"{value['dtype']}[{', '.join(f'≤{dim}' if may else str(dim) for dim, may in marks)}]"


def to_dot(report: MethodReport) -> str:
    """Return a `digraph` of the data of `report_data`. Constants are counted in the label of their reader."""
    lines = [
        f"digraph {_quoted(report['method'])} {{",
        "  rankdir=TB;",
        '  node [shape=box, fontname="monospace", fontsize=10];',
        '  edge [fontname="monospace", fontsize=9];',
    ]
    clusters: dict[int | None, list[str]] = {}
    for call in report["calls"]:
        clusters.setdefault(call["delegate"], []).append(f"c{call['row']} [label={_quoted(_label(call, report))}];")
    for delegate, nodes in clusters.items():
        if delegate is None:
            lines += [f"  {node}" for node in nodes]
        else:
            lines += [f"  subgraph cluster_{delegate} {{", f"    label={_quoted(f'delegate {delegate}')};"]
            lines += [*(f"    {node}" for node in nodes), "  }"]
    lines += [f"  {line}" for line in (*_ends(report), *_edges(report))]
    return "\n".join([*lines, "}", ""])


def _label(call: CallRow, report: MethodReport) -> str:
    values = [report["values"][p] for a in call["args"] for p in a["parts"] if isinstance(p, int)]
    held = [v for v in values if v["kind"] in ("constant", "state") and not v["made"]]
    lines = [f"#{call['row']} {short_name(call['name'])}"]
    if held:
        lines.append(f"{len(held)} stored, {size(sum(v['bytes'] for v in held))}")
    return "\n".join(lines)


def _ends(report: MethodReport) -> Iterator[str]:
    """Yield nodes for inputs and outputs."""
    for role, ids in (("input", report["inputs"]), ("output", report["outputs"])):
        for number, value_id in enumerate(ids):
            label = f"{role} {number}\n{_value(report, value_id)}"
            yield f"{role}{number} [shape=ellipse, label={_quoted(label)}];"


def _edges(report: MethodReport) -> Iterator[str]:
    """Yield edges from the last call that wrote a value to each call that reads it."""
    passed = {value_id: f"input{number}" for number, value_id in enumerate(report["inputs"])}
    writer = dict(passed)
    for call in report["calls"]:
        for value_id in dict.fromkeys(p for a in call["args"] for p in a["parts"] if isinstance(p, int)):
            if value_id in writer:
                yield f"{writer[value_id]} -> c{call['row']} [label={_quoted(_value(report, value_id))}];"
        writer |= dict.fromkeys((*call["outs"], *call["in_place"]), f"c{call['row']}")
    for number, value_id in enumerate(report["outputs"]):
        if value_id in writer:
            yield f"{writer[value_id]} -> output{number} [label={_quoted(_value(report, value_id))}];"


def _value(report: MethodReport, value_id: int) -> str:
    return f"%{value_id} {type_text(report['values'][value_id])}"


def _quoted(text: str) -> str:
    """Return a string for Graphviz. A backslash would start an escape such as \\N, the node's name."""
    escaped = sanitize(text).replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return f'"{escaped}"'


FOLDER = Path(__file__).parent
MAX_TICKS = 12  # on the axis of the timeline


def render_page(report: MethodReport) -> str:
    """Return the page for the data of `report_data`."""
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            values=report["values"],
            outline=_outline(report),
            counts=_counts(report["calls"]),
            timeline=_timeline(report),
            embedded=_embedded(report),
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
            style=(FOLDER / "page.css").read_text(encoding="utf-8"),
            script=script,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": size,
        "basename": os.path.basename,
        "short_name": short_name,
        "search": search_text,
        "search_constant": _constant_text,
    }
    environment.tests["only_tensors"] = _only_tensors
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    return environment


def _only_tensors(argument: ArgumentData) -> bool:
    """Return whether an argument is a tensor, a live scalar or a list of these, and not a literal."""
    parts = [part for part in argument["parts"] if part not in ("[", ", ", "]")]
    return bool(parts) and all(isinstance(part, int) for part in parts)


def search_text(call: CallRow, values: Mapping[int, ValueRow]) -> str:
    """Return the text that the search box searches: a line per name or value, in lower case."""
    mentioned = dict.fromkeys(p for a in call["args"] for p in a["parts"] if isinstance(p, int))
    literals = [p for a in call["args"] for p in a["parts"] if isinstance(p, str)]
    lines = [f"#{call['row']}", call["name"], call["origin"], call["runs"], *call["kernels"], *literals]
    lines += [f"%{v} {type_text(values[v])} {values[v]['kind']}" for v in (*mentioned, *call["outs"])]
    return "\n".join(dict.fromkeys(lines)).lower().replace("≤", "")


def _constant_text(constant: ConstantData) -> str:
    ids = " ".join(f"%{v}" for v in constant["values"])
    return f"{ids} {constant['dtype']}[{', '.join(map(str, constant['dims']))}] {constant['name']}".lower()


def _counts(calls: Sequence[CallRow]) -> dict[str, int]:
    counts = {"dispatches": sum(len(call["kernels"]) for call in calls)}
    for call in calls:
        counts[call["runs"]] = counts.get(call["runs"], 0) + 1
    return counts


# ---------------------------------------------------------------- the list of calls


def _outline(report: MethodReport) -> list[dict[str, Any]]:
    """Return the list as nested items: calls, equal blocks of calls, and headings."""
    stages = {stage["first"]: (n, stage) for n, stage in enumerate(report["stages"]) if stage["calls"]}
    blocks: dict[int, dict[str, Any]] = {
        block["first"]: {"kind": "block", "block": block, "number": n, "of": len(group), "like": group[0], "inside": []}
        for group in report["repeats"]
        for n, block in enumerate(group, 1)
    }
    mixed = len({call["delegate"] for call in report["calls"]}) > 1
    items: list[dict[str, Any]] = []
    target, last_of_block = items, -1
    previous: object = "none"
    for call in report["calls"]:
        row = call["row"]
        if row > last_of_block:
            target = items
        if len(stages) > 1 and row in stages:
            number, stage = stages[row]
            target.append({"kind": "stage", "number": number, "stage": stage})
        if row in blocks:
            items.append(blocks[row])
            target, last_of_block = blocks[row]["inside"], row + blocks[row]["block"]["calls"] - 1
        if mixed and call["delegate"] != previous:
            previous = call["delegate"]
            target.append({"kind": "delegate", "number": previous})
        target.append({"kind": "call", "call": call})
    return items


# ---------------------------------------------------------------- the memory timeline


class Timeline(TypedDict):
    """Positions on the timeline of memory, in percent of its width."""

    ticks: list[tuple[int, str]]
    layers: list[tuple[int, str, str]]
    lanes: list[tuple[BufferData, list[tuple[ValueRow, str, str]]]]
    peak: int
    peak_row: int
    allocated: int
    curve: str


def _timeline(report: MethodReport) -> Timeline | None:
    """Return positions on the timeline, in percent of its width."""
    memory, rows = report["memory"], len(report["calls"])
    if memory is None or not rows:
        return None
    step = next(
        s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, *range(1000, rows + 1001, 1000)) if rows / s <= MAX_TICKS
    )
    peak = max(memory["in_use"])
    return {
        "ticks": [(row, _percent(row, rows)) for row in range(0, rows, step) if row < 0.97 * rows],
        "layers": [
            (n, _percent(block["first"], rows), _percent(block["calls"], rows))
            for group in report["repeats"]
            for n, block in enumerate(group, 1)
        ],
        "lanes": [
            (buffer, [_bar(report["values"][tensor], rows) for tensor in buffer["tensors"]])
            for buffer in memory["buffers"]
            if buffer["kind"] == "activation"
        ],
        "peak": peak,
        "peak_row": memory["in_use"].index(peak),
        "allocated": sum(b["bytes"] for b in memory["buffers"] if b["kind"] == "activation"),
        "curve": _curve(memory["in_use"], peak),
    }


def _bar(value: ValueRow, rows: int) -> tuple[ValueRow, str, str]:
    assert value["live"] is not None, "a tensor in a buffer has a lifetime"
    first, last = value["live"]
    return value, _percent(first, rows), _percent(last + 1 - first, rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4f}"


def _curve(in_use: Sequence[int], peak: int) -> str:
    """Return the points of a step line, one unit wide per row and 100 high."""
    points = ["0,100"]
    for row, count in enumerate(in_use):
        height = 100 - 100 * count / max(peak, 1)
        points += [f"{row},{height:.2f}", f"{row + 1},{height:.2f}"]
    return " ".join([*points, f"{len(in_use)},100"])


# ---------------------------------------------------------------- what the script needs


def _embedded(report: MethodReport) -> dict[str, Any]:
    """Return calls and values without entries that are absent, empty or false."""

    def short(entry: Mapping[str, object]) -> dict[str, object]:
        return {key: value for key, value in entry.items() if value or (value == 0 and value is not False)}

    return {
        "calls": [short(call) | {"args": [short(a) for a in call["args"]]} for call in report["calls"]],
        "values": {value_id: short(value) for value_id, value in report["values"].items()},
    }
