"""The outcomes of the zoo: docs/files/zoo-programs.csv and zoo-networks.csv, and their summaries on docs/zoo.md.

`python -m tests.studies zoo --write` and `python -m tests.studies zoo --networks --write` write them; tests read them
again.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.support.harness.markdown_tables import table

from .index import Program, programs
from .outcome import Kind, Outcome

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "zoo.md"
PROGRAMS = DOCS / "files" / "zoo-programs.csv"
# What ExecuTorch says when it fails, in part, and what that means.
IN_WORDS = {
    "graph_output_allocated": "the memory plan of a delegate with dynamic sizes fails",
    "not decomposed or delegated": "the partitioner claims an op and then leaves it",
    "fake mode": "a pass of the Vulkan backend mixes two tracers",
    "Buffer output": "a buffer written in a delegate is lost",
    "Tried to erase Node": "a buffer written in a delegate is lost",
    "was tagged to be consumed": "a buffer written in a delegate is also returned",
    "is tagged with": "a parameter or buffer is returned as it is",
    "control flow operator": "no such loop in a file",
    "used before it has been defined": "a pass puts a dynamic size after its use",
    "Missing out variants": "no out-variant of an op that writes its statistics",
    "insertion point": "a delegate of nothing but assertions",
    "WithEffects": "an assertion with effects",
    "tensors used as indices": "the quantizer makes positions floats, to which an integer is added",
    "Cannot add value for list": "a list of dynamic sizes in a delegate",
}
FIGURES = ("shapes", "delegates", "kernel_calls", "on_cpu", "error")
HEAD = ("program", "family", "description", "outcome", *FIGURES, "reason", "message")
SUMMARY = ("Family", "Programs", *(str(kind).capitalize() for kind in Kind), "Largest error")


def write(outcomes: Mapping[str, Outcome]) -> None:
    rows = [row(programs()[name], outcome) for name, outcome in outcomes.items()]
    PROGRAMS.write_text(to_csv(HEAD, rows), encoding="utf-8")
    PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), "programs", summary(rows)), encoding="utf-8")


def row(program: Program, o: Outcome) -> dict[str, str]:
    figures = {name: "" for name in FIGURES}
    if o.kind is Kind.RIGHT:
        figures = {name: str(getattr(o, name)) for name in FIGURES[:-1]} | {"error": f"{o.error:.1e}"}
    about = program.about.removesuffix(".")
    known = {"program": program.name, "family": program.family, "description": about, "outcome": str(o.kind)}
    return known | figures | {"reason": in_words(o), "message": o.why}


def in_words(outcome: Outcome) -> str:
    """Return what a message of the exporter means; "" if that is not known, or the message says it."""
    if outcome.kind is not Kind.EXPORTER:
        return ""
    return next((words for part, words in IN_WORDS.items() if part in outcome.why), "")


def summary(rows: Sequence[Mapping[str, str]]) -> str:
    """Return the table of outcomes by family."""
    families = sorted({row["family"] for row in rows})
    groups = [(name, [row for row in rows if row["family"] == name]) for name in families]
    return table(SUMMARY, [counts((name,), group) for name, group in [*groups, ("all", rows)]])


def counts(names: tuple[str, ...], rows: Sequence[Mapping[str, str]], kinds: Iterable[str] = Kind) -> tuple[str, ...]:
    """Return names, the number of programs, how many have each outcome, and their largest error."""
    counted = Counter(row["outcome"] for row in rows)
    errors = [float(row["error"]) for row in rows if row["error"]]
    largest = f"{max(errors):.1e}" if errors else "–"
    return (*names, str(len(rows)), *(str(counted[kind]) for kind in kinds), largest)


# ---------------------------------------------------------------- files


def to_csv(head: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def with_part(text: str, name: str, part: str) -> str:
    """Return a page with another generated part of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = text.partition(begin)
    if end not in rest:
        raise ValueError(f"{PAGE.name}: expected {begin} and {end}")
    return f"{before}{begin}\n\n{part}\n{end}{rest.partition(end)[2]}"
