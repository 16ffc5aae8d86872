"""The rate of decoding on a device whose steps take a set time."""

from __future__ import annotations

import pytest

from tests.support.harness.devices import gpu_of
from tests.support.harness.set_time import SetTimeRecorder
from tests.support.models.tiny_llm import CONTEXT, write_tiny_llm
from webpte.llm import LLM

SECONDS, DISPATCHES = 0.003, 155  # of SmolLM2 on a laptop's GPU


@pytest.mark.slow  # a figure of the idle machine
@pytest.mark.parametrize("rows", [1, 4])
def test_device_of_set_time_hardly_waits_for_host(tmp_path, monkeypatch, rows):
    prompts = [{"tokens": [7 + row], "max_new_tokens": CONTEXT - 8} for row in range(rows)]
    shares = []
    with LLM.load(write_tiny_llm(tmp_path) / "tiny.pte", max_sequences=rows) as llm:

        def decode():
            answers = list(llm.generate_many(prompts, stop=[], dry_multiplier=0, speculate=False))
            assert [len(answer.tokens) for answer in answers] == [CONTEXT - 8] * rows

        llm.stop_tokens = frozenset()
        decode()  # compiles
        gpu = gpu_of(llm.engine.runner.method)
        recorder = SetTimeRecorder(gpu, SECONDS, DISPATCHES)
        monkeypatch.setattr(gpu, "recorder", recorder)
        for _ in range(5):
            first = len(recorder.submits) + 4  # after the prompts
            decode()
            shares.append(recorder.busy(first))
    assert max(shares) >= 0.95, shares
