"""Models whose layers keep windows or recurrent states answer over HTTP as in Python.

The second prompt continues the first, and the third parts from it before its end.
"""

from __future__ import annotations

import httpx
import pytest

from tests.studies.families.measuring import measured
from tests.support.harness.serving import Running
from tests.support.models.families import first
from webpte.llm import LLM

PROMPTS = ("once upon a time", "once upon a time, 12", "once up")
NEW = 8  # tokens of an answer


@pytest.mark.slow
def test_turns_of_families_with_other_states_over_http_equal_python():
    programs = {family: measured(first(family)).path for family in ("gemma3", "lfm2", "qwen3_5")}
    expected = {}
    for family, path in programs.items():
        with LLM.load(path) as llm:
            answers = [llm.complete(prompt, max_new_tokens=NEW, speculate=False) for prompt in PROMPTS]
            expected[family] = [answer.result() for answer in answers]
    results: dict[str, list[str]] = {family: [] for family in programs}
    with (
        Running(*(f"{family}={path}" for family, path in programs.items())) as running,
        httpx.Client(base_url=running.api, timeout=240) as client,
    ):
        for prompt in PROMPTS:  # the models take turns
            for family, texts in results.items():
                body = {"model": family, "prompt": prompt, "max_tokens": NEW, "temperature": 0}
                answer = client.post("completions", json=body)
                assert answer.status_code == 200, answer.text
                texts.append(answer.json()["choices"][0]["text"])
    assert results == expected and all(map(any, expected.values()))
