"""Plant every mutant (or those whose name contains a WORD): `python -m tests.studies mutants [WORD ...]`.

Ends with status 1 if a mutant survives its test. Minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.studies.mutants.models import MODEL_MUTANTS
from tests.studies.mutants.planting import FAILED, STALE, status
from tests.studies.mutants.table import MUTANTS


def main(words: Sequence[str]) -> int:
    chosen = [
        mutant for mutant in (*MUTANTS, *MODEL_MUTANTS) if not words or any(word in mutant.name for word in words)
    ]
    survivors = 0
    for mutant in chosen:
        actual = status(mutant, mutant.test)
        killed = actual == FAILED
        survivors += not killed
        result = "killed" if killed else "STALE" if actual == STALE else f"SURVIVED (status {actual})"
        print(f"{result}: {mutant.name} by {mutant.test}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
