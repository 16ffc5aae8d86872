"""What a run found, as data: kept as JSON, merged with earlier runs, and rendered by others."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """One contender in one row: either why it cannot, or how long it takes and how far it is off."""

    cannot: str | None = None
    seconds: float | None = None  # median
    quartiles: tuple[float, float] | None = None
    runs: int = 0
    error: float | None = None  # largest difference from NumPy's result, relative to its largest value
    wrong: bool = False  # beyond the row's tolerance: timed, but never the best
    about: dict[str, Any] = field(default_factory=dict)  # a note, the variant that was taken, ...

    def timed(self, seconds: Sequence[float]) -> Result:
        if not seconds:
            return replace(self, cannot="it failed while it was timed")
        low, _, high = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
        return replace(self, seconds=statistics.median(seconds), quartiles=(low, high), runs=len(seconds))


@dataclass
class Report:
    """Rows by name. `facts` are the adapter, the driver, versions and the date, which each row has too."""

    facts: dict[str, Any]
    rows: dict[str, dict[str, Result]]
    dates: dict[str, str] = field(default_factory=dict)

    def merged(self, newer: Report) -> Report:
        """Rows of both; a row of the newer report replaces the older one, because a row is one interleaved run."""
        return Report({**self.facts, **newer.facts}, {**self.rows, **newer.rows}, {**self.dates, **newer.dates})

    def seconds(self, row: str, contender: str) -> float | None:
        result = self.rows.get(row, {}).get(contender)
        return result.seconds if result is not None and not result.wrong else None

    def best_peer(self, row: str, peers: Sequence[str]) -> float | None:
        return min((s for s in (self.seconds(row, peer) for peer in peers) if s is not None), default=None)

    def save(self, path: Path) -> None:
        rows = {row: {name: asdict(result) for name, result in results.items()} for row, results in self.rows.items()}
        stored = {"facts": self.facts, "dates": self.dates, "rows": rows}
        path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Report:
        stored = json.loads(path.read_text(encoding="utf-8"))
        rows = {row: _results(results) for row, results in stored["rows"].items()}
        return cls(stored["facts"], rows, stored["dates"])


def _results(stored: Mapping[str, dict[str, Any]]) -> dict[str, Result]:
    return {
        name: Result(**{**result, "quartiles": tuple(result["quartiles"]) if result["quartiles"] else None})
        for name, result in stored.items()
    }
