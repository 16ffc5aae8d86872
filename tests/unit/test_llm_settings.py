"""Settings of a language model are checked by type and range before anything changes."""

from __future__ import annotations

import argparse
import inspect
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM
from webpte.cli.generation_options import add_kv_cache
from webpte.fusion.llm_rewrites import FEATURE_ADJUSTMENTS, FEATURE_TOP_LOGPROBS, MAX_TOP_LOGPROBS, SAMPLING_WORDS
from webpte.llm import LLM, GenerateSettings, Sequence, settings
from webpte.llm.constraints import CONSTRAINT_KINDS
from webpte.llm.model import LLMLoadOptions
from webpte.llm.options import EngineOptions
from webpte.llm.sampling import ALL_HIDDEN
from webpte.llm.settings import CHECKS, SamplingParams, sampling_params_from, tokens_from
from webpte.ops.sampling import sampling
from webpte.serve.config import Config
from webpte.serve.messages import WorkerOptions

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
REFUSED: dict[str, tuple[Any, ...]] = {
    "seed": (-1, 2**31, 2**40, 1.5, math.inf, math.nan, "x", None, True),
    "temperature": (-1.0, 1e-9, 1e9, math.inf, math.nan, 1e300, 10**400, "x", None, True),
    "top_k": (-1, 2**31, math.inf, 2.5, None),
    "top_p": (-1.0, 0.0, 1.0000001, 2.0, math.nan, math.inf, "0.5", None),
    "min_p": (-0.1, 1.1, math.nan, "x", None),
    "repetition_penalty": (0.0, -1.0, 1e9, math.nan, None, True),
    "presence_penalty": (-101.0, 1e3, math.inf, "x"),
    "frequency_penalty": (-101.0, 1e3, math.inf, "x"),
    "logit_bias": (
        None,
        3,
        [1],
        {-1: 1.0},
        {"a": 1.0},
        {True: 1.0},
        {1: 1e3},
        {1: math.nan},
        dict.fromkeys(range(1025), 0),
    ),
    "top_logprobs": (-1, 21, 1.0, None, True),
    "max_new_tokens": (0, -1, 1.5, "3", None, True, 2**31),
    "tokens_per_submit": (0, -1, 1.5, "a", 10**6, False),
    "stop": (None, [1], 5, b"abc", [""], "", ["a", None]),
    "logprobs": (1, None, "yes"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_sampling_params_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(webpte.InputError) as caught:
        sampling_params_from({name: value})
    assert str(caught.value.argument).partition("[")[0] == name
    assert caught.value.reason in ("wrong_type", "out_of_range", "too_many")


def test_sampling_params_in_range_is_accepted():
    settings = sampling_params_from(
        {"seed": np.int64(2**31 - 1), "temperature": np.float32(0.5), "top_k": 10**9, "top_p": 1e-9, "stop": "abc"}
    )
    assert (settings.seed, settings.temperature, settings.stop) == (2**31 - 1, 0.5, ("abc",))
    assert SamplingParams() == sampling_params_from({})


def test_sampling_params_unknown_name_suggests_match():
    with raises(webpte.InputError, "'tempurature'", "temperature?", "max_new_tokens", code="unknown_option"):
        sampling_params_from({"tempurature": 1})


def test_generate_checks_each_setting_once(monkeypatch):
    checked: list[float] = []

    def check_temperature(value):
        checked.append(value)
        return value

    monkeypatch.setitem(settings.CHECKS, "temperature", check_temperature)
    FakeLLM().generate(tokens=[1, 2], temperature=0.5, max_new_tokens=1).result()
    assert checked == [0.5]


@pytest.mark.parametrize(
    ("tokens", "code", "expected"),
    [
        ([5, -1], "token_out_of_range", ["tokens[1]", "-1", "0 to 127"]),
        ([128], "token_out_of_range", ["tokens[0]", "128"]),
        ([0, 0, 10**6], "token_out_of_range", ["tokens[2]", "1000000"]),
        ([2**31], "token_out_of_range", ["tokens[0]", "2147483648"]),
        ([10**30], "token_out_of_range", ["tokens[0]", f"{10**30}"]),
        ([1.0], "wrong_type", ["tokens[0]", "1.0"]),
        ([True], "wrong_type", ["tokens[0]", "True"]),
        (["a"], "wrong_type", ["tokens[0]", "'a'"]),
        ([None], "wrong_type", ["tokens[0]", "None"]),
        ([[1]], "wrong_type", ["tokens[0]", "[1]"]),
        (np.array([[1, 2]]), "wrong_type", ["tokens[0]", "array([1, 2])"]),
        (np.array([1.5]), "wrong_type", ["tokens[0]", "1.5"]),
        ("abc", "wrong_type", ["tokens", "'abc'"]),
        (7, "wrong_type", ["tokens", "got 7"]),
    ],
)
def test_tokens_outside_the_vocabulary_are_refused(tokens, code, expected):
    with raises(webpte.InputError, *expected, code=code):
        tokens_from(tokens, 128)


@given(st.lists(st.integers(0, 127)))
def test_token_ids_in_vocabulary_are_unchanged(tokens):
    assert tokens_from(tokens, 128) == tokens_from(np.array(tokens, np.int64), 128) == tuple(tokens)


def test_sampling_constants_equal_device_constants():
    assert sampling.SETTINGS == SAMPLING_WORDS
    assert (sampling.EDITED, sampling.TOP_LOGPROBS) == (FEATURE_ADJUSTMENTS, FEATURE_TOP_LOGPROBS)
    assert sampling.MAX_TOP_LOGPROBS == MAX_TOP_LOGPROBS
    assert sampling.ALL_HIDDEN == ALL_HIDDEN and sampling.UNUSABLE < 0


def test_sampling_params_listed_in_one_order_with_types_and_help():
    known = list(GenerateSettings.__annotations__)
    assert {each.name for each in fields(SamplingParams)} == {*known, "constraint", "thought"} - {*CONSTRAINT_KINDS}
    assert set(CHECKS) == {*known} - {*CONSTRAINT_KINDS}
    for function in (LLM.generate, LLM.generate_many, Sequence.generate):
        shown = inspect.signature(function).parameters
        assert list(shown)[-len(known) :] == known
        assert {shown[name].kind for name in known} == {inspect.Parameter.KEYWORD_ONLY}
        assert (shown["max_new_tokens"].default, shown["max_new_tokens"].annotation) == (1024, "int")
        assert sampling_params_from({name: shown[name].default for name in known}) == SamplingParams()


def test_loading_a_language_model_takes_every_keyword_of_load():
    ours, theirs = inspect.signature(LLM).parameters, inspect.signature(webpte.load).parameters
    shared = [name for name, each in theirs.items() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    assert shared and {name: ours[name].default for name in shared} == {name: theirs[name].default for name in shared}
    assert list(LLMLoadOptions.__annotations__) == [
        name for name, each in ours.items() if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert not [each for each in ours.values() if each.kind is inspect.Parameter.VAR_KEYWORD]


def test_engine_options_are_declared_once():
    parameters, worker = inspect.signature(LLM).parameters, {each.name: each.default for each in fields(WorkerOptions)}
    parser = argparse.ArgumentParser()
    add_kv_cache(parser)
    for option in fields(EngineOptions):
        parameter = parameters[option.name]
        assert (parameter.default, parameter.annotation) == (option.default, option.type)
        assert worker.get(option.name, option.default) == option.default
    assert Config().kv_cache == parser.parse_args([]).kv_cache == EngineOptions.kv_cache
    assert Config().slots == EngineOptions.max_sequences


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("kv_cache", "f64", "unknown_choice"),
        ("recover", 1, "wrong_type"),
        ("max_sequences", 0, "out_of_range"),
        ("max_sequences", 4097, "out_of_range"),
        ("max_queue_size", 2.0, "wrong_type"),
        ("prefix_cache", -1, "out_of_range"),
    ],
)
def test_engine_options_wrong_value_raises(name, value, code):
    with raises(webpte.InputError, name, code=code):
        EngineOptions(**{name: value})
