"""Run programs one after the other in this process, print what came of each, and count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import webpte

Result = tuple[str, str]  # the kind of an outcome, such as "right", and its details
REFUSED, FAILED = "refused", "failed"
MAX_MESSAGE_CHARS = 300


class NotExportedError(Exception):
    """The exporter raised an error, so there is no program."""


def outcome_of(run: Callable[[], Result]) -> Result:
    """Return what `run` returns, or the kind of its error."""
    try:
        return run()
    except NotExportedError as error:
        return "not exported", _in_short(error.__cause__ or error)
    except webpte.Error as error:
        return REFUSED, _in_short(error)
    except Exception as error:
        return FAILED, _in_short(error)


def _in_short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:MAX_MESSAGE_CHARS]!r}"


def run_programs(runs: Iterable[tuple[str, Callable[[], Result]]]) -> Counter[str]:
    """Run all of them, print a line for each and the counts, and return the number of outcomes of each kind."""
    counts: Counter[str] = Counter()
    for name, run in runs:
        kind, details = outcome_of(run)
        counts[kind] += 1
        print(f"{name}: {kind}, {details}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "no program")
    return counts
