"""The short form of `python -m tests.serving kills`: a worker is killed, and loses its device, under four streams."""

from __future__ import annotations

import pytest

from tests.serving.kills import run
from tests.support.models.tiny_llm import write_tiny_llm


@pytest.mark.slow  # tests/process/test_supervisor.py kills the worker of a fake model in the gate
@pytest.mark.gpu
def test_streams_outlive_their_worker(tmp_path):
    result = run(str(write_tiny_llm(tmp_path) / "tiny.pte"), 2, seed=3, tokens=40)
    assert [one.how for one in result] == ["SIGKILL", "SIGUSR1"] and result[0].recovery > 0
    assert [one.open for one in result] == [4, 4]
    assert [(one.wrong, one.errors) for one in result] == [((), ())] * 2
