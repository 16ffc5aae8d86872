"""Constraints and drafts on the device, with the tiny Llama: answers satisfy the constraint, and drafts change no
token.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.studies.schemas.answers import answer, wrong
from tests.studies.schemas.making import schema
from tests.studies.speculation.__main__ import compare
from tests.support.models.tiny_llm import CONTEXT, tokens_of, write_tiny_llm
from webpte.llm import LLM


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    with LLM.load(write_tiny_llm(tmp_path_factory.mktemp("llm")) / "tiny.pte") as model:
        model.stop_tokens = frozenset()  # random weights choose any token; runs shall be long
        model.engine.background = False  # submits are counted
        yield model


def test_answers_to_schemas_validate(llm):
    small = [result for result in map(schema, range(60)) if len(str(result)) < 150 and "größe" not in str(result)]
    answers = answer(llm, small, 60)
    finished = [result for result in answers if result.finished]
    assert len(finished) >= 5
    assert [wrong(result) for result in finished] == [None] * len(finished)


@pytest.mark.parametrize("drawn", [{}, {"temperature": 1.0, "seed": 3}])
def test_constraint_followed_with_sampling_and_drafts(llm, drawn):
    text = llm.complete("hi", regex="[a-f]{2}-[0-9]{3}", **drawn).result()
    assert re.fullmatch("[a-f]{2}-[0-9]{3}", text)
    assert text == llm.complete("hi", regex="[a-f]{2}-[0-9]{3}", speculate=True, **drawn).result()


def test_constrained_and_free_answers_share_passes(llm):
    asked: list[dict[str, Any]] = [{"regex": "[a-z]{20}"}, {}, {"choices": ["yes", "no"]}, {"temperature": 1.0}]
    alone = [
        tokens_of(llm.complete(f"number {at}", max_new_tokens=20, **settings)) for at, settings in enumerate(asked)
    ]
    answers = [llm.complete(f"number {at}", max_new_tokens=20, **settings) for at, settings in enumerate(asked)]
    for each in answers:
        each.start()
    for each in answers:
        each.result()
    assert [each.tokens for each in answers] == alone


@pytest.mark.parametrize("number", range(8))
def test_drafts_change_no_token(llm, number):
    """A text that repeats itself is drafted, and what is drawn or penalised is drawn and penalised the same."""
    drawn: list[dict[str, Any]] = [{}, {"temperature": 0.9, "seed": number}, {"frequency_penalty": 0.4}]
    prompt = ("abcd" * 8)[: 9 + number]
    for settings in drawn:
        results = [
            tokens_of(llm.generate(prompt, max_new_tokens=CONTEXT - len(prompt), speculate=how, **settings))
            for how in (False, True)
        ]
        assert results[0] == results[1]


def test_drafts_change_no_token_of_answers_side_by_side(llm):
    assert compare(llm, ["abcabcabc", "1, 2, 3, 1, 2,", "no no no no", "hello", "aaaaaaaaaa", "the end"], 24) == 0


def test_drafts_that_are_right_save_passes(llm):
    """A grammar that leaves no freedom for long, but more than it forces: what was said once is said again."""
    words = {"regex": "(ab|cd){24}"}
    counts = []
    for how in (False, True):
        before = llm.engine.runner.method.counters.snapshot()
        llm.complete("hello", max_new_tokens=50, speculate=how, **words).result()
        counts.append(llm.engine.runner.method.counters.since(before).submits)
    assert counts[1] < counts[0]
