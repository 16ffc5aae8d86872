"""A report as a table: for the terminal by rich, for the documentation as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table

from .goals import BARE, PEERS, WEBPTE, Goal, divided
from .results import Report, Result
from .rows import ROWS
from .workers import ENVIRONMENTS


@dataclass
class Grid:
    """Cells as text, and the notes that marks in them refer to."""

    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    ms = seconds * 1e3
    return f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}"


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def grid(report: Report, units: bool = False) -> Grid:
    """Return one line per row, one column per contender: median milliseconds, and two ratios."""
    contenders = [name for name in ENVIRONMENTS if any(name in results for results in report.rows.values())]
    result = Grid(["ms per call", *contenders, "webpte / bare", "webpte / best peer"])
    for row in ROWS.values():
        if row.name not in report.rows or row.unit != units:
            continue
        cells = [_cell(row.title, name, report.rows[row.name].get(name), result.notes) for name in contenders]
        mine = report.seconds(row.name, WEBPTE)
        ratios = [divided(mine, report.seconds(row.name, BARE)), divided(mine, report.best_peer(row.name, PEERS))]
        result.rows.append([row.title, *cells, *map(ratio, ratios)])
    return result


def _cell(title: str, name: str, result: Result | None, notes: list[str]) -> str:
    if result is None:
        return "–"
    if result.cannot is not None:
        return f"– {_mark(f'{name}: {result.cannot}', notes)}"
    text = milliseconds(result.seconds)
    if result.wrong:
        return f"({text}) {_mark(f'{name}, {title}: wrong by {result.error:.1%}', notes)}"
    note = result.about.get("note")
    return f"{text} {_mark(f'{name}: {note}', notes)}" if note else text


def _mark(note: str, notes: list[str]) -> str:
    """Notes that say the same of several rows are one."""
    if note not in notes:
        notes.append(note)
    return f"[{notes.index(note) + 1}]"


def to_rich(grid: Grid, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(grid.header):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return table


def to_markdown(grid: Grid) -> str:
    lines = ["| " + " | ".join(grid.header) + " |", "|---" + "|--:" * (len(grid.header) - 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in grid.rows]
    return "\n".join(lines)


def goals_grid(goals: Sequence[Goal]) -> Grid:
    result = Grid(["ratio", "measured", "goal", ""])
    for goal in goals:
        verdict = {True: "reached", False: "missed", None: "not measured"}[goal.reached]
        result.rows.append([goal.title, ratio(goal.ratio), f"≤ {goal.limit:g}", verdict])
    return result
