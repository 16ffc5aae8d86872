"""The results of the bench as a part of docs/benchmarks.md, from a report."""

from __future__ import annotations

from pathlib import Path

from .goals import goals
from .goals import units as unit_goals
from .plot import draw
from .results import Report
from .tables import goals_grid, grid, to_markdown
from .workers import ENVIRONMENTS

DOCS = Path(__file__).parents[1] / "docs"
STORED = Path(__file__).with_name("results.json")

HEAD = """## All rows

Medians of {runs} turns. In each turn, every runtime runs as many calls as fit in 20 ms, at least one. A runtime whose
turns take more than 30 s is stopped after three turns. `python -m bench --write-docs` stores the results. {warning}
| | |
|---|---|
{facts}

![Time per call in relation to webpte](images/performance.png)

{table}

The *bare engine* is hand-written WGSL for one shape, called through wgpu-native's C functions: the best of at least six
variants of each kernel, selected on this adapter before the run, with the same uploads and readback. Numbers in
brackets are wrong results and do not count as best.

{notes}
"""

SOFTWARE = """
The adapter is Mesa's lavapipe, which is a CPU: **absolute times do not apply to GPUs.** A ratio between 0.67 and 1.5 is
a tie.
"""

GOALS = """
### Goals

{goals}
"""

UNITS = """
### In units of a bare GEMV

The unit is a product of a 4096² matrix in f32 and a vector, run by the bare engine in the same turns.

{units}
"""

TAIL = """
### Run the benchmark

```
pip install -e . --group dev
python -m bench.setup                     # the other runtimes, each in its own environment
python -m bench                           # all rows; --rows NAME,… for some, --json FILE to store or merge results
python -m bench --units                   # in units of a bare GEMV
python -m bench --write-docs              # bench/results.json, this page and its figures
```

On Linux without a GPU, use Mesa 25 or newer (`mesa-vulkan-drivers`) and an idle machine. Older versions are rejected by
some runtimes, which then compute on the CPU; the benchmark reports this.
"""


def write(report: Report) -> list[Path]:
    """Draw the figure of a stored report, and write the page that shows it."""
    from docs import make_benchmarks

    picture = DOCS / "images" / "performance.png"
    draw(report, picture)
    make_benchmarks.main()
    return [make_benchmarks.PAGE, picture]


def markdown(report: Report, units: Report | None = None) -> str:
    table = grid(report)
    runs = max((result.runs for results in report.rows.values() for result in results.values()), default=0)
    notes = "\n".join(f"[{i}] {note}  " for i, note in enumerate(table.notes, 1))
    warning = SOFTWARE if "llvmpipe" in report.facts.get("adapter", "") else ""
    text = HEAD.format(runs=runs, warning=warning, facts=facts_table(report), table=to_markdown(table), notes=notes)
    text += GOALS.format(goals=to_markdown(goals_grid(goals(report))))
    if units is not None:
        text += UNITS.format(units=to_markdown(goals_grid(unit_goals(units))))
    return text + TAIL


def facts_table(report: Report) -> str:
    facts = report.facts
    days = sorted({date[:10] for date in report.dates.values()})
    lines = [("adapter", facts.get("adapter", "unknown")), ("driver", facts.get("driver", "unknown"))]
    lines += [("date", " to ".join(days[:1] + days[-1:] if len(days) > 1 else days)), ("machine", facts["machine"])]
    lines += [("Python", facts["python"])]
    lines += [(name, versions) for name, versions in facts.get("versions", {}).items() if name in ENVIRONMENTS]
    return "\n".join(f"| {name} | {value} |" for name, value in lines)
