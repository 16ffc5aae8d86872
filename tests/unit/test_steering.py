"""Constraints and drafts in the engine, over a runner whose tokens depend on every bit of its caches."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.studies.schemas.making import schema
from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import VOCABULARY, FakeLLM, FakeRunner, FakeTokenizer, alone
from webpte.errors import InputError
from webpte.llm import ConstraintError
from webpte.llm.constraints import GrammarMatcher

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
QUESTION = list(range(40, 50))


class Characters(FakeTokenizer):
    """A vocabulary of ASCII, one token per character."""

    special_ids = frozenset[int]()

    def token_bytes(self, count):
        return [chr(token if token >= 32 else token + VOCABULARY).encode() for token in range(count)]

    def decode(self, tokens, *, specials=False):
        return b"".join(self.token_bytes(VOCABULARY)[token] for token in tokens).decode("utf-8", "replace")


def model(capacity=256, **options: Any):
    llm = FakeLLM(FakeRunner(capacity=capacity, **options))
    tokenizer: Any = Characters()
    llm.text_model.tokenizer = tokenizer
    return llm


def read(answer):
    answer.result()
    return answer


def ask(llm, count=120, prompt=QUESTION, **settings: Any):
    return llm.generate(tokens=prompt, max_new_tokens=count, **settings)


def test_answers_to_schemas_validate():
    llm, finished = model(max_batch_tokens=32), 0
    for seed in range(40):
        asked = schema(seed)
        if "größe" in json.dumps(asked, ensure_ascii=False):
            continue  # these tokens cannot say it
        answer = read(ask(llm, json_schema=asked, temperature=0.5, seed=seed))
        if answer.usage.finish_reason == "stop":
            finished += 1
            jsonschema.validate(json.loads(answer.text), asked)
        else:
            assert answer.usage.finish_reason == "length" and len(answer.tokens) == 120
    assert finished >= 15


def test_forced_tokens_go_in_one_pass():
    llm = model(max_batch_tokens=64)
    answer = read(ask(llm, json_schema=PERSON, seed=1, temperature=1.0, speculate=False))
    assert set(json.loads(answer.text)) == {"name", "age"}
    forced = '{"name": "'
    assert len(llm.runner.passes[0]) == len(QUESTION) + len(forced)  # with the prompt
    assert max(len(rows) for rows in llm.runner.passes[1:]) >= len('", "age": ')
    assert len(llm.runner.passes) <= len(answer.tokens) - len('{"name": "", "age": }') + 2
    assert answer.usage.completion_tokens == len(answer.tokens) == len(answer.text)


def test_constraint_forced_response_needs_no_step():
    llm = model()
    answer = read(ask(llm, choices=["yes"]))
    assert (answer.text, answer.usage.finish_reason, llm.runner.passes) == ("yes", "stop", [])


def test_constraint_end_token_ends_optional_continuation():
    llm = model()
    llm.stop_tokens = frozenset({3})
    for seed in range(5):
        answer = read(ask(llm, regex="[a-c]+", seed=seed, temperature=1.0))
        assert answer.usage.finish_reason == "stop" and set(answer.text) <= set("abc")
        assert answer.tokens[-1] == 3 and len(answer.text) == len(answer.tokens) - 1


def test_batched_constrained_answers_equal_single_answers():
    asked: list[dict[str, Any]] = [{"json_schema": PERSON}, {"regex": "[a-z]{40}"}, {}, {"choices": ["abc", "abd"]}]
    prompts = [[n, *QUESTION] for n in range(len(asked))]
    single = [
        read(ask(model(), 50, prompt, **settings)).tokens for prompt, settings in zip(prompts, asked, strict=True)
    ]
    for options in ({}, {"max_slots": 2}, {"max_batch_tokens": 5}):
        llm = model(**options)
        answers = [ask(llm, 50, prompt, **settings) for prompt, settings in zip(prompts, asked, strict=True)]
        for answer in answers:
            answer.start()
        while any(answer.usage.finish_reason is None for answer in answers):
            for answer in answers:
                next(answer, None)
        assert [answer.tokens for answer in answers] == single


@pytest.mark.parametrize("recalls", [None, 1])
@pytest.mark.parametrize("value", [{"json_schema": {"type": "array", "items": PERSON, "minItems": 6}}, {"regex": ".*"}])
def test_constraints_and_drafts_go_together(value, recalls):
    results = []
    for speculate in (False, True, None):
        llm = model()
        llm.runner.recalls = recalls
        answer = read(ask(llm, 100, speculate=speculate, **value))
        results.append((answer.tokens, answer.text, len(llm.runner.passes)))
    assert results[0][:2] == results[1][:2] == results[2][:2]
    assert results[1][2] <= results[0][2]
    if recalls is not None:
        assert results[1][2] < 0.6 * results[0][2]


def test_constraint_device_lost_keeps_grammar_state():
    want = read(ask(model(), json_schema=PERSON)).tokens
    llm = model()
    answer = ask(llm, json_schema=PERSON)
    for count in range(len(want)):
        if count % 3 == 0:
            llm.runner.lose()
            llm.recover()
        next(answer)
    assert next(answer, None) is None and answer.tokens == want


def test_constraint_unsupported_is_refused_at_once():
    llm = model()
    with raises(ConstraintError, "#/uniqueItems", code="invalid"):
        ask(llm, json_schema={"type": "array", "uniqueItems": True})
    with raises(InputError, "regex", "choices", code="conflicting_options"):
        ask(llm, regex="a", choices=["a"])
    with raises(InputError, "speculate", "got 1", code="wrong_type"):
        ask(llm, speculate=1)
    assert llm.runner.passes == []


def test_constraint_failing_midway_ends_only_its_response(monkeypatch):
    llm = model()
    broken, other = ask(llm, 20, regex="[a-z]{90}"), ask(llm, 20, [1, 2, 3])
    assert next(broken) and next(other)
    mask = GrammarMatcher.mask

    def fail(matcher):
        raise ConstraintError("too complex", code="too_complex")

    monkeypatch.setattr(GrammarMatcher, "mask", fail)
    with raises(ConstraintError, code="too_complex"):
        read(broken)
    assert broken.error is not None and broken.usage.finish_reason == "cancelled"
    assert read(other).tokens == alone([1, 2, 3], 20)
    monkeypatch.setattr(GrammarMatcher, "mask", mask)
    assert len(read(ask(llm, 20, regex="[a-z]{90}")).tokens) == 20


def test_constraint_with_logprobs_samples_each_token():
    plain, asking = (read(ask(model(), json_schema=PERSON, logprobs=asked)) for asked in (False, True))
    assert plain.tokens == asking.tokens
    llm = model()
    assert all(piece.logprob == -1 for piece in ask(llm, json_schema=PERSON, logprobs=True, speculate=False))
    assert len(llm.runner.passes) == len(plain.tokens)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "seed": 4}, {"repetition_penalty": 1.1}])
def test_drafts_change_no_token_and_save_passes(settings):
    llm = model()
    llm.runner.recalls = 1
    want = alone(QUESTION, 150, 256, recalls=1, **settings)
    assert read(ask(llm, 150, speculate=True, **settings)).tokens == want
    if "repetition_penalty" not in settings:  # it leads out of circles
        assert len(llm.runner.passes) < 75


def test_drafts_are_computed_only_if_faster():
    """Rows that cost little are taken by themselves; rows that cost as much as passes are not."""
    passes = []
    for slope in (0.1, 1.5):
        llm = model(capacity=600)
        llm.runner.recalls = 1
        llm.runner.cost = lambda rows, slope=slope: 0.1 * (1 + slope * (rows - 1))
        assert read(ask(llm, 500)).tokens == alone(QUESTION, 500, 600, recalls=1)
        passes.append(len(llm.runner.passes))
    assert passes[0] < 200 and passes[1] > 480


def test_speculation_pauses_during_prefill():
    llm = model(max_batch_tokens=8)
    llm.runner.recalls = 1
    answer = ask(llm, 60, speculate=True)
    for _ in range(20):
        next(answer)
    before = len(llm.runner.passes)
    other = ask(llm, 5, list(range(1, 60)))
    other.start()
    next(other)
    slots = {row.slot for rows in llm.runner.passes[before:] for row in rows}
    assert len(slots) == 2
    for rows in llm.runner.passes[before + 1 :]:
        mine = [row for row in rows if row.slot == answer._request.sequence.slot.number]
        assert len(mine) <= 1 or len(mine) == len(rows)
    assert read(answer).tokens == alone(QUESTION, 60, recalls=1, capacity=256)
