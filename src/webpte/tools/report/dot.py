"""Draw the graph of a method for Graphviz: nodes are calls, edges tensors and live scalars, clusters delegates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...text import sanitize, size


def short_name(name: str) -> str:
    """Return the short name of an op: ``add.Tensor`` for ``aten.add.Tensor``, ``cat`` for ``aten::cat.out``."""
    _, kernel, rest = name.rpartition("::")
    if not kernel and (rest.count(".") > 1 or rest.startswith("webpte.")):
        rest = rest.split(".", 1)[1]
    return rest.removesuffix(".default").removesuffix(".out") or name


def type_text(value: Mapping[str, Any]) -> str:
    """Return the type of a value of a report, ``f32[1, ≤255, 576]``. A dim with ≤ may be smaller."""
    if value["dims"] is None:
        return str(value["dtype"])
    marks = zip(value["dims"], value["dynamic"], strict=True)
    return f"{value['dtype']}[{', '.join(f'≤{dim}' if may else str(dim) for dim, may in marks)}]"


Report = Mapping[str, Any]


def to_dot(report: Report) -> str:
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


def _label(call: Report, report: Report) -> str:
    values = [report["values"][p] for a in call["args"] for p in a["parts"] if isinstance(p, int)]
    held = [v for v in values if v["kind"] in ("constant", "state") and not v["made"]]
    lines = [f"#{call['row']} {short_name(call['name'])}"]
    if held:
        lines.append(f"{len(held)} stored, {size(sum(v['bytes'] for v in held))}")
    return "\n".join(lines)


def _ends(report: Report) -> Iterator[str]:
    """Yield nodes for inputs and outputs."""
    for role, ids in (("input", report["inputs"]), ("output", report["outputs"])):
        for number, value_id in enumerate(ids):
            label = f"{role} {number}\n{_value(report, value_id)}"
            yield f"{role}{number} [shape=ellipse, label={_quoted(label)}];"


def _edges(report: Report) -> Iterator[str]:
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


def _value(report: Report, value_id: int) -> str:
    return f"%{value_id} {type_text(report['values'][value_id])}"


def _quoted(text: str) -> str:
    """Return a string for Graphviz. A backslash would start an escape such as \\N, the node's name."""
    escaped = sanitize(text).replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return f'"{escaped}"'
