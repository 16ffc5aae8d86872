"""Programs that are wrong in structure: the answer is a plan or a typed error, and it comes soon."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.studies.fuzz.bases import bases
from tests.studies.fuzz.mutations import mutant
from tests.studies.fuzz.targets import plan_program, refused_soon

KINDS = range(len(bases()))


@pytest.mark.parametrize("kind", KINDS)
def test_honest_ones_are_planned(kind):
    data = bases()[kind]
    assert plan_program(data.original)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
def test_mutants_are_planned_or_refused(kind, seed):
    data = mutant(bases()[kind], Random(seed))
    if data is not None:
        with refused_soon():
            plan_program(data)
