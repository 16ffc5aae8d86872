"""The rate of decoding on a device whose steps take a set time."""

from __future__ import annotations

import pytest

from tests.support.harness.devices import gpu_of
from tests.support.harness.set_time import SetTimeRecorder
from tests.support.models.families import first
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.builder import build_program
from webpte.llm import LLM

SECONDS, DISPATCHES = 0.003, 155  # of SmolLM2 on a laptop's GPU
TURNS = 5
CONTEXT, MAX_TOKENS = 128, 24


def model_path(family, folder):
    if family == "llama":
        return write_tiny_llm(folder) / "tiny.pte"
    first(family).save(folder)
    return build_program(folder, folder / "model.pte", quantize="4w", max_context=CONTEXT, max_tokens=MAX_TOKENS)


@pytest.mark.slow  # a figure of the idle machine
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(
    ("family", "share"),
    # Qwen 3.5 waits for its copies of states, every 32 tokens.
    [("llama", 0.95), ("gemma3", 0.95), ("lfm2", 0.95), ("qwen3_5", 0.85)],
)
def test_device_of_set_time_hardly_waits_for_host(tmp_path, monkeypatch, family, share, rows):
    shares = []
    with LLM.load(model_path(family, tmp_path), max_sequences=rows) as llm:
        count = llm.capacity - 8
        prompts = [{"tokens": [7 + row], "max_new_tokens": count} for row in range(rows)]

        def decode():
            answers = list(llm.generate_many(prompts, stop=[], dry_multiplier=0, speculate=False))
            assert [len(answer.tokens) for answer in answers] == [count] * rows

        llm.stop_tokens = frozenset()
        decode()  # compiles
        gpu = gpu_of(llm.engine.runner.method)
        recorder = SetTimeRecorder(gpu, SECONDS, DISPATCHES)
        monkeypatch.setattr(gpu, "recorder", recorder)
        for _ in range(TURNS):
            first_submit = len(recorder.submits) + 4  # after the prompts
            decode()
            shares.append(recorder.busy(first_submit))
    print(f"{family}, {rows}: {', '.join(f'{each:.3f}' for each in shares)}")
    assert max(shares) >= share, shares
