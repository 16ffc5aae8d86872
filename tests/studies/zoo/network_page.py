"""The outcomes of networks: docs/files/zoo-networks.csv and its summary on docs/zoo.md.

`python -m tests.studies zoo --networks --write` writes them; tests read them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.harness.markdown_tables import table

from . import record
from .index import MODES, networks
from .outcome import Kind, Outcome
from .page import DOCS, PAGE, counts, in_words, to_csv, with_part

NETWORKS = DOCS / "files" / "zoo-networks.csv"
NOT_RUN = "not run"
KINDS = (*map(str, Kind), NOT_RUN)
SHAPES = {False: "static", True: "dynamic"}
HEAD = ("network", "description", "mode", "shapes", "outcome", "error", "commit", "reason", "message")
SUMMARY = ("Mode", "Shapes", "Tolerance", "Programs", *(kind.capitalize() for kind in KINDS), "Largest error")


def write(outcomes: Mapping[str, Outcome]) -> None:
    """Record the outcomes and write all that are recorded."""
    record.add(outcomes)
    known = rows(record.read())
    NETWORKS.write_text(to_csv(HEAD, known), encoding="utf-8")
    PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), "networks", summary(known)), encoding="utf-8")


def rows(outcomes: Mapping[str, Outcome]) -> list[dict[str, str]]:
    """Return a row for each network in each mode, also of those that did not run."""
    result = []
    for name, program in networks().items():
        about = program.about.removesuffix(".")
        key = {"network": program.network, "description": about, "mode": program.mode}
        key["shapes"] = SHAPES[program.dynamic]
        result.append(key | _outcome(outcomes.get(name)))
    return result


def _outcome(o: Outcome | None) -> dict[str, str]:
    if o is None:
        return dict.fromkeys(HEAD[4:], "") | {"outcome": NOT_RUN}
    error = f"{o.error:.1e}" if o.kind is Kind.RIGHT else ""
    return {"outcome": str(o.kind), "error": error, "commit": o.commit, "reason": in_words(o), "message": o.why}


def summary(known: Sequence[Mapping[str, str]]) -> str:
    """Return the table of outcomes by mode and kind of shapes."""
    lines = [
        counts(
            (mode, shapes, f"{tolerance:.0e}"),
            [row for row in known if (row["mode"], row["shapes"]) == (mode, shapes)],
            KINDS,
        )
        for mode, tolerance in MODES.items()
        for shapes in SHAPES.values()
    ]
    return table(SUMMARY, [*lines, counts(("all", "", ""), known, KINDS)])
