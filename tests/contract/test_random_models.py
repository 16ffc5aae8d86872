"""Random language models of a seed that changes every day: their programs compute what transformers does.

A failure prints the seed and the config; `WEBPTE_TEST_SEED` repeats it. `tests.support.harness.random_models` runs
hundreds by night.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.harness.random_models import check, seed_of_the_day
from webpte.device import acquire


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Keep a device open: programs that are loaded one after the other share its pipelines."""
    gpu = acquire({})
    yield
    gpu.release()


@pytest.mark.parametrize("number", range(12))
def test_random_model_computes_what_transformers_does(number: int) -> None:
    check(seed_of_the_day(), number)
