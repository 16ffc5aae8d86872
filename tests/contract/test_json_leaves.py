"""A part of the mutants of `python -m tests.studies fuzz leaves` in every run: nothing that comes with a model is
trusted."""

from __future__ import annotations

import pytest

from tests.studies.fuzz.leaves import findings, subjects

SAMPLE = 60  # mutants of each subject: all of them take minutes


@pytest.mark.parametrize("name", subjects())
def test_changed_leaves_are_read_or_refused_soon(name):
    count, lines = findings(subjects()[name](), SAMPLE)
    assert count == SAMPLE and lines == []
