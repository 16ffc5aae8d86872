"""Sampling defaults of a model, the prompts of `generate` and `complete`, and conversations."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM
from webpte.llm.defaults import (
    OWN_DEFAULTS,
    apply_defaults,
    check_defaults,
    describe_defaults,
    read_end_tokens,
    read_generation_config,
)

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def config(tmp_path, **fields):
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(fields))
    return read_generation_config(path)


def test_generation_config_without_file_or_sampling_gives_our_defaults(tmp_path):
    assert read_generation_config(None) == config(tmp_path, eos_token_id=2) == dict(OWN_DEFAULTS)
    assert config(tmp_path, temperature=0.6, top_p=0.9) == dict(OWN_DEFAULTS)  # transformers ignores them, too


def test_generation_config_with_sampling_gives_its_fields(tmp_path):
    assert config(tmp_path, do_sample=True, temperature=0.6, top_p=0.9) == {"temperature": 0.6, "top_p": 0.9}
    assert config(tmp_path, do_sample=True, top_k=64) == {"temperature": 1.0, "top_k": 64}
    assert config(tmp_path, repetition_penalty=1.1) == {"temperature": 0.0, "repetition_penalty": 1.1}


def test_generation_config_fields_that_are_not_applied_are_named(tmp_path, caplog):
    config(tmp_path, do_sample=True, top_k=3, no_repeat_ngram_size=3, suppress_tokens=[5], num_beams=1, max_length=20)
    (record,) = caplog.records
    text = record.getMessage()
    assert "no_repeat_ngram_size = 3" in text and "suppress_tokens = [5]" in text
    assert not any(name in text for name in ("top_k", "num_beams", "max_length", "do_sample"))
    caplog.clear()
    config(tmp_path, newest_filter=0.5)
    assert "newest_filter = 0.5: an unknown field" in caplog.text


def test_end_tokens_are_those_of_the_generation_config(tmp_path):
    path = tmp_path / "generation_config.json"
    for fields, expected in (({}, ()), ({"eos_token_id": 5}, (5,)), ({"eos_token_id": [5, 7]}, (5, 7))):
        path.write_text(json.dumps(fields))
        assert read_end_tokens(path) == expected
    path.write_text('{"eos_token_id": ["5"]}')
    with raises(webpte.FormatError, code="eos_token_id"):
        read_end_tokens(path)


def test_generation_config_with_invalid_values_is_a_format_error(tmp_path):
    with raises(webpte.FormatError, code="invalid_field"):
        config(tmp_path, do_sample=True, top_p=2)
    with raises(webpte.FormatError):
        check_defaults({"seed": 3}, "manifest.json")


@pytest.mark.parametrize(
    ("settings", "applied"),
    [
        ({}, {"temperature": 0.6, "top_p": 0.9, "dry_multiplier": 0.8}),
        ({"seed": 3}, {"temperature": 0.6, "top_p": 0.9, "dry_multiplier": 0.8, "seed": 3}),
        ({"temperature": 0.0}, {"temperature": 0.0, "top_p": 0.9}),
        ({"presence_penalty": 1.0}, {"temperature": 0.6, "top_p": 0.9, "presence_penalty": 1.0}),
        ({"regex": "a+"}, {"temperature": 0.6, "top_p": 0.9, "regex": "a+"}),
    ],
)
def test_apply_defaults_with_explicit_sampling_drops_default_penalties(settings, applied):
    assert apply_defaults(settings, {"temperature": 0.6, "top_p": 0.9, "dry_multiplier": 0.8}) == applied
    assert describe_defaults(OWN_DEFAULTS) == "temperature 0, dry_multiplier 0.8"


def test_generate_without_settings_uses_the_models_defaults():
    llm = FakeLLM()
    plain = llm.generate(tokens=[1, 2], max_new_tokens=8).result()
    llm.sampling_defaults = {"temperature": 0.7, "top_k": 5}
    assert llm.generate(tokens=[1, 2], max_new_tokens=8).result() != plain
    explicit = llm.generate(tokens=[1, 2], max_new_tokens=8, temperature=0.7, top_k=5)
    assert llm.generate(tokens=[1, 2], max_new_tokens=8).result() == explicit.result()
    many = llm.generate_many([{"tokens": [1, 2]}], max_new_tokens=8)
    assert [answer.text for answer in many] == [explicit.text]


def test_generate_with_a_template_renders_a_string_and_complete_does_not():
    llm = FakeLLM()
    assert llm.generate("ab").prompt == llm.complete("ab").prompt  # without a template
    llm.text_model.template = TEMPLATE
    asked = llm.generate([{"role": "user", "content": "ab"}])
    assert llm.generate("ab").prompt == asked.prompt == tuple(llm.tokenizer.encode("<user>ab<assistant>"))
    assert llm.complete("ab").prompt == llm.sequence().complete("ab").prompt == tuple(llm.tokenizer.encode("ab"))
    prompts: list[Any] = ["ab", {"prompt": "ab"}, {"text": "ab"}]
    lengths = [len(answer.prompt) for answer in llm.generate_many(prompts, max_new_tokens=1)]
    assert lengths == [len(asked.prompt), len(asked.prompt), 2]
    with raises(webpte.InputError, code="conflicting_options"):
        llm.sequence().generate("ab", tokens=[1])
    with raises(webpte.InputError, code="wrong_type"):
        llm.complete(cast(Any, b"ab"))
    with raises(webpte.InputError, code="empty_prompt"):
        llm.generate("")


def test_str_of_an_answer_is_its_whole_text():
    llm = FakeLLM()
    answer = llm.complete("ab", max_new_tokens=5)
    assert repr(answer).startswith("Generation(not started")
    assert f"{answer}" == str(answer) == answer.text and len(answer.tokens) == 5


def test_chat_history_keeps_answers_as_read():
    llm = FakeLLM()
    with raises(webpte.InputError, code="no_chat_template"):
        llm.chat()
    llm.text_model.template = TEMPLATE
    chat = llm.chat("be brief", max_new_tokens=4)
    first = str(chat.ask("one"))
    second = chat.ask("two", max_new_tokens=3)
    next(second)
    assert chat.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": second.text},
    ]
    assert repr(chat) == "Chat(2 turns)"
    chat.undo()
    third = chat.ask("three")
    assert llm.tokenizer.encode("<user>three<assistant>") == list(third.prompt[-22:])
    assert [message["content"] for message in chat.messages] == ["be brief", "one", first]  # nothing was read of it
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "be brief"}]
    for bad in ("", None):
        with raises(webpte.InputError):
            chat.ask(cast(Any, bad))
    with raises(webpte.InputError, code="wrong_type"):
        llm.chat(cast(Any, 5))
    with raises(webpte.InputError, code="unknown_option"):
        llm.chat(**cast(Any, {"tempurature": 1}))
