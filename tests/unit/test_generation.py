"""An answer is computed once, however it is read: whole, piece by piece, by its text."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM, FakeRunner, FakeTokenizer, alone
from webpte.errors import InputError
from webpte.llm import LogitsError, ToolCall, ToolFormat, Usage
from webpte.llm.prompts import SpecialTokens

TOKENS = alone([1, 2], 5)
TEXT = FakeTokenizer().decode(TOKENS)


def test_generation_read_twice_computes_once():
    llm = FakeLLM()
    answer = llm.generate(tokens=[1, 2], max_new_tokens=5)
    assert not llm.runner.passes and not answer.finished
    assert answer.result() == TEXT and answer.finished
    passes = len(llm.runner.passes)
    assert answer.result() == answer.text == TEXT and answer.tokens == TOKENS and list(answer) == []
    assert len(llm.runner.passes) == passes


def test_looking_at_an_answer_never_computes():
    llm = FakeLLM()
    answer = llm.generate(tokens=[1, 2], max_new_tokens=5)
    assert (answer.text, answer.tokens, answer.tool_calls, answer.usage.finish_reason) == ("", [], (), None)
    assert not llm.runner.passes
    assert answer.result() == TEXT == answer.text and answer.usage.finish_reason == "length"


def test_generation_reports_how_much_of_its_prompt_is_computed():
    llm, events = FakeLLM(), []
    prompt = list(range(1, 41))
    answer = llm.generate(tokens=prompt, max_new_tokens=5)
    answer.report_prompt(lambda event: events.append((event.stage, event.done, event.total, answer.ready)))
    assert answer.result() and answer.tokens == alone(prompt, 5)
    assert events == [("prompt", 16, 40, False), ("prompt", 32, 40, False)]  # the step that ends it has a token


def test_generation_tool_calls_have_the_types_of_the_tools(monkeypatch):
    llm = FakeLLM()
    llm.text_model.special_tokens = SpecialTokens(tool_format=ToolFormat("parameters", "<call>", "</call>"))
    llm.text_model.template = "{{ tools | length }}{{ messages | length }}"
    said = "<call>\n<function=f>\n<parameter=a>\n8001\n</parameter>\n</function>\n</call>"
    monkeypatch.setattr(FakeTokenizer, "decode", lambda self, tokens, specials=False: said if specials else "")
    messages = [{"role": "user", "content": "hi"}]
    for kind, value in (("string", "8001"), ("integer", 8001)):
        parameters = {"type": "object", "properties": {"a": {"type": kind}}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        answer = llm.generate(messages, tools=tools, max_new_tokens=2)
        answer.result()
        assert answer.tool_calls == (ToolCall("f", {"a": value}),)


def test_generation_properties_while_streaming():
    answer = FakeLLM().generate(tokens=[1, 2], max_new_tokens=5)
    pieces = iter(answer)
    assert (answer.text, answer.tokens, answer.usage.completion_tokens) == ("", [], 0)
    next(pieces)
    assert (answer.text, answer.tokens, answer.usage.finish_reason) == (TEXT[0], TOKENS[:1], None)
    assert answer.result() == TEXT


def test_generation_closed_before_start_is_empty():
    answer = FakeLLM().generate(tokens=[1, 2])
    answer.close()
    assert answer.result() == answer.text == "" and answer.usage.finish_reason == "cancelled"


def test_generation_error_is_raised_once_and_kept():
    llm = FakeLLM()
    llm.runner.bad = lambda tokens: len(tokens) == 4
    answer = llm.generate(tokens=[1, 2], max_new_tokens=5)
    with pytest.raises(LogitsError):
        answer.result()
    assert answer.text == TEXT[:2] and isinstance(answer.error, LogitsError) and answer.result() == TEXT[:2]


def test_generation_repr_computes_nothing():
    llm = FakeLLM(FakeRunner(max_slots=4))
    answer = llm.generate(tokens=[1, 2], max_new_tokens=5)
    assert repr(answer) == "Generation(not started, 2 prompt tokens)" and "not started" in answer._repr_html_()
    assert not llm.runner.passes
    next(answer)
    assert repr(answer) == f"Generation(in progress, 2 prompt tokens, 1 generated, {TEXT[0]!r})"
    answer.result()
    assert repr(answer) == f"Generation(length, 2 prompt tokens, 5 generated, {TEXT!r})"
    assert TEXT in answer._repr_html_()
    usage = Usage(10, 4, 3, 0.5, 0.25, "stop")
    assert repr(usage) == (
        "Usage(prompt_tokens=10, reused_tokens=4, completion_tokens=3, prefill_seconds=0.500, decode_seconds=0.250, "
        "prefill_rate=12.0, decode_rate=8.0, finish_reason='stop')"
    )
    assert "<th" in usage._repr_html_() and "12.0" in usage._repr_html_()
    assert repr(llm).startswith("LLM('', context: 64 tokens, vocabulary: 97 tokens, at once: up to 4 answers")


def test_generation_repr_in_notebook_is_escaped():
    class Evil(FakeTokenizer):
        def decode(self, tokens, *, specials=False):
            return "<script>\x1b[31m" * len(tokens)

    llm = FakeLLM()
    tokenizer: Any = Evil()
    llm.text_model.tokenizer, llm.path = tokenizer, "<b>.pte"
    answer = llm.generate(tokens=[1], max_new_tokens=30)
    answer.result()
    for page in (answer._repr_html_(), llm._repr_html_()):
        assert "<script>" not in page and "<b>" not in page and html.unescape(page) != page
    assert "\x1b" not in repr(answer) and len(repr(answer)) < 300 and re.search(r"…'\)$", repr(answer))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.9, "seed": 4},
        {"repetition_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {5: 1.0}},
    ],
    ids=["greedy", "seeded", "penalised"],
)
def test_resume_other_process_same_tokens(settings):
    """After any of its tokens."""
    prompt, settings = [1, 2, 3, 2], {**settings, "max_new_tokens": 20}
    whole = FakeLLM().generate(tokens=prompt, **settings)
    pieces = list(whole)
    for count in range(len(pieces)):
        values = [piece.token for piece in pieces[:count]]
        rest = FakeLLM().resume(prompt, values, settings)
        assert list(rest) == pieces[count:]
        assert (rest.text, rest.tokens) == (whole.text, whole.tokens)
        assert rest.usage.completion_tokens == whole.usage.completion_tokens
        assert rest.usage.finish_reason == whole.usage.finish_reason


def test_held_back_text_comes_with_the_rest_of_an_answer():
    prompt, most = [1, 2, 3], 6
    said = FakeLLM().generate(tokens=prompt, max_new_tokens=most)
    begun = said.result()
    stop = begun[2:4] + "\u4fff"  # begins with what is said, and does not come
    whole = FakeLLM().generate(tokens=prompt, max_new_tokens=most, stop=stop)
    pieces = list(whole)
    assert [len(piece.text) for piece in pieces] == [1, 1, 0, 0, 3, 1]
    rest = FakeLLM().resume(prompt, [piece.token for piece in pieces[:4]], {"max_new_tokens": most, "stop": stop})
    assert list(rest) == pieces[4:] and rest.text == begun
    stopped = FakeLLM().resume(prompt, whole.tokens[:4], {"max_new_tokens": most, "stop": begun[3:5]})
    assert [piece.text for piece in stopped] == [""] and stopped.text == begun[:3]
    assert stopped.usage.finish_reason == "stop"


@pytest.mark.parametrize(
    ("value", "settings", "code", "expected"),
    [
        ([1, 2, 3], {"max_new_tokens": 3}, "already_ended", ["3 tokens", "(length)", "token 3"]),
        ([1] * 70, {}, "already_ended", ["70 tokens", "(length)", "token 62"]),
        ([1, 9, 2], {}, "already_ended", ["3 tokens", "(stop)", "token 2"]),
        ([5, 6], {"stop": "\u4e05"}, "already_ended", ["2 tokens", "stop string"]),
        ([97], {}, "token_out_of_range", ["tokens[0]", 97, "0 to 96"]),
    ],
)
def test_resume_finished_response_is_refused(value, settings, code, expected):
    llm = FakeLLM()
    llm.stop_tokens = frozenset({9})
    with raises(InputError, *expected, code=code):
        llm.resume([1, 2, 3], value, settings)
    assert llm.generate(tokens=[1, 2, 3], max_new_tokens=1).result()
