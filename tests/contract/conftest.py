"""Language models of these tests are greedy: their tokens are compared with those of references, and small random
models repeat themselves, which the sampling defaults prevent."""

from collections.abc import Iterator

import pytest

from webpte.llm import defaults


@pytest.fixture(scope="package", autouse=True)
def greedy_defaults() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(defaults, "OWN_DEFAULTS", {"temperature": 0.0})
    yield
    patch.undo()
