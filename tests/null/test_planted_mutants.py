"""The mutants of tests/mutants can still be planted; `python -m tests.mutants` shows that tests kill them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.planting import ROOT, occurrences
from tests.mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_changes_is_there_once(mutant):
    assert occurrences(mutant) == 1, f"{mutant.file} has changed: adapt the mutant, or plant it elsewhere"
    assert mutant.new != mutant.old
    assert Path(ROOT, mutant.test.split()[0].partition("::")[0]).exists()


def test_names_are_told_apart():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
