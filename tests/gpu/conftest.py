"""A device that stays open, so that tests share it and its pipelines."""

from __future__ import annotations

import pytest

from webpte.device import acquire


@pytest.fixture(scope="session")
def device():
    gpu = acquire({})
    yield gpu
    gpu.release()
