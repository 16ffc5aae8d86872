"""Draw the figures of docs/how-it-works.md, docs/architecture.md and the index: python -m docs.make_figures [--png]

The figures of docs/how-it-works.md show the plan of docs/demo/model.pte for a device with WebGPU's default limits. This
needs neither torch nor a GPU; tests/project/test_figures.py fails if a figure is out of date. `--png` also writes the
overview as PNG for the README, because package indexes do not show SVG; this needs Chromium.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import webpte
from docs.architecture_figures import method_objects, request_life
from docs.drawing import Drawing
from webpte.debug.report import report_data
from webpte.debug.report.data import MethodReport
from webpte.plan import Planner
from webpte.wgsl import Caps

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
PROGRAM = HERE / "demo" / "model.pte"
METHOD = "forward"
# What a call is about decides its color, before fusion and after.
ABOUT = {
    "norm": "green",
    "linear": "blue",
    "attention": "violet",
    "rotary": "violet",
    "sdpa": "violet",
    "cache": "violet",
    "embedding": "orange",
    "add": "red",
    "mul": "red",
    "sigmoid": "red",
}
ROW, BOX = 22, 18


@dataclass(frozen=True)
class Facts:
    """One program: its calls in the file, its report, and its dispatches at the bound and for one token."""

    exported: list[tuple[str, tuple[int, ...], frozenset[int]]]  # name, what it makes, what it reads
    report: MethodReport
    many: list[tuple[str, int]]  # kernel, workgroups
    one: list[tuple[str, int]]
    tokens: int


def facts() -> Facts:
    with webpte.load(PROGRAM) as program:
        graph = program.graph(METHOD)
        planner = program.planner(METHOD, Caps(adapter="a device with WebGPU's default limits"))
        tokens = planner.plan.graph.tensor(planner.plan.graph.inputs[0]).dims
        return Facts(
            exported=[(call.name, tuple(call.outs), frozenset(call.args)) for call in graph.calls],
            report=report_data(PROGRAM, method=METHOD),
            many=_dispatches(planner, {}),
            one=_dispatches(planner, {planner.plan.graph.inputs[0]: (1, 1)}),
            tokens=tokens[1],
        )


def _dispatches(planner: Planner, inputs: Mapping[int, tuple[int, ...]]) -> list[tuple[str, int]]:
    lowered = [dispatch for schedule in planner.lower(inputs) for dispatch in schedule.dispatches]
    return [(dispatch.kernel.label.partition("[")[0], math.prod(dispatch.grid)) for dispatch in lowered]


def color_of(name: str) -> str:
    return next((color for word, color in ABOUT.items() if word in name), "grey")


def short(name: str) -> str:
    return re.sub(r"^(aten|et_vk|webpte|llama)\.|\.default$|\.Tensor$", "", re.sub(r"\.default$", "", name))


# ---------------------------------------------------------------- what it is


OVERVIEW = (
    "From a checkpoint to any GPU",
    "GGUF files, safetensors and PyTorch models become a .pte program. webpte runs it from Python, as a server and in "
    "a web page.",
)
SOURCES = (("GGUF", "one file"), ("safetensors", "a folder, or hf:org/name"), ("PyTorch", "a module, by ExecuTorch"))
STAGES = (("model.pte", "a program", "orange"), ("webpte", "any GPU", "blue"))
USES = (
    ("Python", "NumPy in and out, text, vectors"),
    ("a server, a terminal", "OpenAI, Anthropic, Ollama; chat"),
    ("a web page", "static files, the visitor's GPU"),
)


def overview() -> Drawing:
    """Not drawn from the program: from what people have to the three places where it runs."""
    drawing = Drawing("overview", 860, 236, *OVERVIEW)
    for n, (title, below) in enumerate(SOURCES):
        y = 2 + 84 * n
        _box(drawing, 0, y, 176, title, below, "grey")
        drawing.line(f"M178,{y + 32} C206,{y + 32} 206,118 230,118", "line", "grey")
    for n, stage in enumerate(STAGES):
        _stage(drawing, 232 + 176 * n, 84, 126, *stage)
    drawing.arrow(362, 118, 42)
    for n, use in enumerate(USES):
        y = 2 + 84 * n
        drawing.line(f"M536,118 C574,118 574,{y + 32} 604,{y + 32}", "line", "blue")
        _box(drawing, 606, y, 252, *use, "green")
    return drawing


def narrow_overview() -> Drawing:
    """The same from top to bottom, for a phone."""
    drawing = Drawing("overview-narrow", 340, 632, *OVERVIEW)
    for n, (title, below) in enumerate(SOURCES):
        y = 2 + 72 * n
        _box(drawing, 48, y, 244, title, below, "grey")
        drawing.line(f"M294,{y + 32} C334,{y + 32} 334,260 242,260", "line", "grey")
    for n, stage in enumerate(STAGES):
        _stage(drawing, 100, 226 + 100 * n, 140, *stage)
    drawing.arrow_down(170, 296, 26)
    for n, use in enumerate(USES):
        y = 420 + 72 * n
        drawing.line(f"M98,360 C6,360 6,{y + 32} 46,{y + 32}", "line", "blue")
        _box(drawing, 48, y, 244, *use, "green")
    return drawing


def _stage(drawing: Drawing, x: float, y: float, width: float, title: str, below: str, color: str) -> None:
    drawing.box(x, y, width, 68, color)
    drawing.text(x + width / 2, y + 30, title, "head", "middle")
    drawing.text(x + width / 2, y + 50, below, "small", "middle")


def _box(drawing: Drawing, x: float, y: float, width: float, title: str, below: str, color: str) -> None:
    drawing.box(x, y, width, 64, color)
    drawing.text(x + 14, y + 27, title, "head")
    drawing.text(x + 14, y + 47, below, "small")


# ---------------------------------------------------------------- one layer, three times


def fused_row(program: Facts) -> list[int | None]:
    """For each call of the file the row of the planned call that does its work, or None where there is none to do."""
    maker = {out: call["row"] for call in program.report["calls"] for out in call["outs"]}
    rows: list[int | None] = [None] * len(program.exported)
    for i in reversed(range(len(program.exported))):
        _, outs, _ = program.exported[i]
        direct = next((maker[out] for out in outs if out in maker), None)
        readers = [
            rows[j] for j, (_, _, reads) in enumerate(program.exported[i + 1 :], i + 1) if reads & set(outs)
        ]  # what is gone was made a part of what read it
        rows[i] = direct if direct is not None else next((row for row in readers if row is not None), None)
    return rows


def layer(program: Facts) -> Drawing:
    """The first layer: calls of the file, calls of the plan, dispatches."""
    block = program.report["repeats"][0][0]
    planned = program.report["calls"][block["first"] : block["first"] + block["calls"]]
    inside = {call["row"] for call in planned}
    rows = fused_row(program)
    before = [(i, name) for i, (name, _, _) in enumerate(program.exported) if rows[i] in inside]
    kernels = [(call["row"], label.partition("[")[0]) for call in planned for label in call["kernels"]]
    height = 74 + ROW * len(before)
    drawing = Drawing(
        "how-layer", 860, height, "One layer in the file, in the plan, and on the device",
        f"{len(before)} calls of the file become {len(planned)} calls of the plan, of which views and scalars cost "
        f"nothing, and {len(kernels)} dispatches.",
    )  # fmt: skip
    columns = ((0, 250, len(before)), (305, 250, len(planned)), (610, 250, len(kernels)))
    heads = ("in the file: {} calls", "after fusion: {} calls", "on the device: {} dispatches")
    for (x, _, count), head in zip(columns, heads, strict=True):
        drawing.text(x, 18, head.format(count), "head")
    left = {i: 46 + ROW * n for n, (i, _) in enumerate(before)}
    middle = _spread(planned, height)
    right = {n: 46 + (height - 80) * (n + 0.5) / len(kernels) for n in range(len(kernels))}
    for i, name in before:
        row = rows[i]
        assert row is not None
        drawing.line(_curve(250, left[i], 305, middle[row]), "line", color_of(name))
        _labeled(drawing, 0, left[i], 250, short(name), color_of(name))
    for n, (row, kernel) in enumerate(kernels):
        drawing.line(_curve(555, middle[row], 610, right[n]), "line", color_of(kernel))
        _labeled(drawing, 610, right[n], 250, kernel, color_of(kernel))
    drawing.text(305, height - 8, "dashed: costs no dispatch", "small")
    for call in planned:
        free = call["runs"] != "gpu"
        label = short(call["name"]) + (f" ({call['runs']})" if free else "")
        _labeled(drawing, 305, middle[call["row"]], 250, label, color_of(call["name"]), "free" if free else "soft")
    return drawing


def _spread(planned: Sequence[Mapping[str, Any]], height: float) -> dict[int, float]:
    return {call["row"]: 46 + (height - 80) * (n + 0.5) / len(planned) for n, call in enumerate(planned)}


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (x + to_x) / 2
    return f"M{x:g},{y:.1f} C{half:g},{y:.1f} {half:g},{to_y:.1f} {to_x:g},{to_y:.1f}"


def _labeled(drawing: Drawing, x: float, y: float, width: float, label: str, color: str, kind: str = "soft") -> None:
    drawing.box(x, round(y - BOX / 2, 1), width, BOX, color, kind)
    drawing.text(x + 8, round(y + 4, 1), label, "code pale" if kind == "free" else "code")


# ---------------------------------------------------------------- dispatches at two shapes


def dispatches(program: Facts) -> Drawing:
    """Workgroups of every dispatch of the method, at the bound and for one token, on a logarithmic scale."""
    step, left, top, tall = 24.5, 150, 40, 96
    most = math.log10(max(groups for _, groups in program.many) * 1.2)
    drawing = Drawing(
        "how-dispatches", 860, 330, "The same dispatches at two shapes",
        f"Workgroups of each dispatch of one call, for {program.tokens} tokens and for one.",
    )  # fmt: skip
    for n, (title, calls) in enumerate(
        ((f"{program.tokens} tokens: prefill", program.many), ("1 token: decode", program.one))
    ):
        base = top + tall + n * (tall + 50)
        drawing.text(0, base - tall + 14, title, "head")
        drawing.text(0, base - tall + 32, f"{len(calls)} dispatches", "small")
        drawing.text(0, base - tall + 48, f"{sum(groups for _, groups in calls):,} workgroups", "small")
        drawing.line(f"M{left},{base} H{left + step * max(len(program.many), len(program.one))}", "axis")
        for i, (kernel, groups) in enumerate(calls):
            height = round(6 + (tall - 24) * math.log10(max(groups, 1)) / most, 1)
            tip = f"{kernel}, {groups} workgroups"
            drawing.box(left + step * i, round(base - height, 1), step - 6, height, color_of(kernel), "full", tip)
            drawing.text(left + step * i + (step - 6) / 2, round(base - height - 4, 1), str(groups), "small", "middle")
    legend = (("embedding", "orange"), ("norm", "green"), ("linear", "blue"), ("attention and its cache", "violet"))
    x = float(left)
    for name, color in legend:
        drawing.box(x, 312, 12, 12, color, "full")
        drawing.text(x + 18, 323, name, "small")
        x += 60 + 6.2 * len(name)
    return drawing


# ---------------------------------------------------------------- memory


def memory(program: Facts) -> Drawing:
    """Which activations lie in which buffer while the calls run."""
    report, planned = program.report, program.report["memory"]
    assert planned is not None
    buffers = [b for b in planned["buffers"] if b["kind"] == "activation"]
    calls, left, width, tall = len(report["calls"]), 130, 730, 26
    held = sum(b["bytes"] for b in buffers)
    tensors = sum(len(b["tensors"]) for b in buffers)
    drawing = Drawing(
        "how-memory", 860, 84 + tall * len(buffers), "Which tensors share a buffer",
        f"{tensors} tensors share {len(buffers)} buffers of {held:,} bytes; apart they would take "
        f"{planned['unshared']:,}.",
    )  # fmt: skip
    drawing.text(0, 18, f"{tensors} tensors in {len(buffers)} buffers: {_kilo(held)} kB", "head")
    drawing.text(left + 190, 18, f"instead of {_kilo(planned['unshared'])} kB, if each had its own", "small")
    for n, block in enumerate(report["repeats"][0]):
        x = left + width * block["first"] / calls
        drawing.line(f"M{x:.1f},34 V{58 + tall * len(buffers)}", "grid")
        drawing.text(round(x + 4, 1), 46, f"layer {n + 1}", "small")
    for row, buffer in enumerate(buffers):
        y = 56 + tall * row
        drawing.text(0, y + 14, f"{_kilo(buffer['bytes'])} kB", "code")
        drawing.line(f"M{left},{y + tall - 3} H{left + width}", "grid")
        for n, tensor in enumerate(buffer["tensors"]):
            value = report["values"][tensor]
            first, last = value["live"] or (0, 0)
            color = "green" if value["input"] or value["output"] else ("blue", "violet", "orange")[n % 3]
            span = max(width * (last + 1 - first) / calls - 1.5, 2)
            dims = ", ".join(map(str, value["dims"] or ()))
            tip = f"%{tensor} {value['dtype']}[{dims}], calls {first} to {last}"
            drawing.box(round(left + width * first / calls, 1), y, round(span, 1), tall - 7, color, "full", tip)
    drawing.text(left, 76 + tall * len(buffers), "call 0", "small")
    drawing.text(left + width, 76 + tall * len(buffers), f"call {calls - 1}", "small", "end")
    return drawing


def _kilo(count: int) -> str:
    return f"{count / 1000:,.1f}"


def drawings() -> dict[str, str]:
    """File names and what is in them."""
    program = facts()
    from_program = [layer(program), dispatches(program), memory(program)]
    figures = [overview(), narrow_overview(), *from_program, method_objects(), request_life()]
    return {f"{drawing.name}.svg": drawing.svg() for drawing in figures}


def main() -> int:
    for name, text in drawings().items():
        (FIGURES / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text)} characters")
    if "--png" in sys.argv[1:]:
        paint(overview(), HERE / "images" / "overview.png")
    return 0


def paint(drawing: Drawing, target: Path) -> None:
    from tests.support.harness.browser import chromium

    margin = 20
    size = {"width": int(drawing.width) + 2 * margin, "height": int(drawing.height) + 2 * margin}
    page_text = f"<body style='margin: {margin}px; background: #fff; color: #1b1f24'>{drawing.svg()}"
    with chromium() as browser:
        page = browser.new_page(viewport=size, device_scale_factor=2)  # type: ignore[arg-type]
        page.set_content(page_text)
        page.screenshot(path=target)
    print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
