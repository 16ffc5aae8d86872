"""A report as an image: how much longer than webpte every contender takes, on a logarithmic scale."""

from __future__ import annotations

from pathlib import Path

from .goals import WEBPTE
from .results import Report
from .rows import ROWS
from .workers import ENVIRONMENTS

COLORS = {
    "webpte (no fusion)": "#7fb2e5",
    "bare engine": "#333333",
    "ONNX Runtime": "#d1495b",
    "LiteRT": "#edae49",
    "tinygrad": "#66a182",
}
MARKERS = {"bare engine": "|"}


def draw(report: Report, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in ROWS.values() if not row.unit and report.seconds(row.name, WEBPTE) is not None]
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1.6), layout="constrained")
    for contender in ENVIRONMENTS:
        if contender == WEBPTE:
            continue
        points = []
        for y, row in enumerate(rows):
            seconds, mine = report.seconds(row.name, contender), report.seconds(row.name, WEBPTE)
            if seconds is not None and mine is not None:
                points.append((seconds / mine, y))
        marker = MARKERS.get(contender, "o")
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=140 if marker == "|" else 48,
            linewidths=2.5 if marker == "|" else 0,
            color=COLORS[contender],
            marker=marker,
            label=contender,
            zorder=3,
        )
    axes.axvline(1, color="#1f6feb", linewidth=2, label=WEBPTE, zorder=2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}×")
    axes.set_yticks(range(len(rows)), [row.title for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="both", which="major", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time per call, webpte = 1 (left is faster, right is slower)")
    figure.legend(loc="outside upper center", ncols=6, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
