"""Chats as OpenAI's client sees them: a real process, a real worker, real HTTP."""

from __future__ import annotations

import openai
import pytest

from tests.serving.asking import HELLO, chat

pytestmark = pytest.mark.gpu


def test_chat_returns_completion_and_usage(client):
    response = chat(client)
    assert response.object == "chat.completion" and response.id.startswith("chatcmpl-") and response.model == "caller"
    (choice,) = response.choices
    assert choice.index == 0 and choice.message.role == "assistant" and choice.finish_reason == "length"
    assert isinstance(choice.message.content, str) and choice.message.content and choice.message.tool_calls is None
    assert response.usage.completion_tokens == 8 and response.usage.prompt_tokens > 10
    assert response.usage.total_tokens == response.usage.prompt_tokens + response.usage.completion_tokens


def test_chat_stream_equals_response(client):
    chunks = list(chat(client, stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == chat(client).choices[0].message.content


def test_chat_stream_usage_is_last_if_requested(client):
    *chunks, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == [] and last.usage.completion_tokens == 8
    assert last.usage.total_tokens == last.usage.prompt_tokens + 8
    assert all(chunk.usage is None for chunk in chunks)


def test_chat_seed_repeats_draws_and_differs_by_seed(client):
    def drawn(seed):
        return chat(client, temperature=1, seed=seed, max_tokens=24).choices[0].message.content

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(2**40 + 1) == drawn(2**40 + 1)


def test_chat_without_seed_responses_differ(client):
    texts = {chat(client, temperature=1, seed=openai.omit, max_tokens=24).choices[0].message.content for _ in range(3)}
    assert len(texts) == 3


def test_chat_n_returns_choices(client):
    response = chat(client, n=3, temperature=1, seed=5, max_tokens=16)
    assert [choice.index for choice in response.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in response.choices]
    assert (
        len(set(texts)) == 3
        and texts[0] == chat(client, temperature=1, seed=5, max_tokens=16).choices[0].message.content
    )
    assert response.usage.completion_tokens <= 48 and response.usage.prompt_tokens == chat(client).usage.prompt_tokens


def test_chat_stream_n_equals_response(client):
    whole = chat(client, n=2, temperature=1, seed=5, max_tokens=16)
    texts = {0: "", 1: ""}
    ends: dict[int, str | None] = {}
    for chunk in chat(client, n=2, temperature=1, seed=5, max_tokens=16, stream=True):
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] = choice.finish_reason or ends.get(choice.index)
    assert list(texts.values()) == [choice.message.content for choice in whole.choices]
    assert list(ends.values()) == [choice.finish_reason for choice in whole.choices]


def test_max_completion_tokens_is_the_newer_name(client):
    assert chat(client, max_tokens=openai.omit, max_completion_tokens=3).usage.completion_tokens == 3


def test_chat_stop_string_cuts_before_it(client):
    free = chat(client, temperature=1, seed=9, max_tokens=40).choices[0].message.content
    stop = free[6]
    cut = chat(client, temperature=1, seed=9, max_tokens=40, stop=[stop, "nowhere in there"]).choices[0]
    assert cut.message.content == free[: free.index(stop)] and cut.finish_reason == "stop"


def test_logprobs(client):
    choice = chat(client, logprobs=True, top_logprobs=3).choices[0]
    entries = choice.logprobs.content
    assert len(entries) == 8 and "".join(entry.token for entry in entries) == choice.message.content
    for entry in entries:
        assert len(entry.top_logprobs) == 3 and entry.logprob <= 0
        tops = [top.logprob for top in entry.top_logprobs]
        assert tops == sorted(tops, reverse=True) and entry.logprob == pytest.approx(tops[0])  # most probable
        assert bytes(entry.bytes).decode() == entry.token


def test_logprobs_in_a_stream(client):
    whole = chat(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    results = []
    for chunk in chat(client, logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices[0].logprobs is not None:
            results += chunk.choices[0].logprobs.content
    assert results == whole


def test_chat_logprobs_default_is_none(client):
    assert chat(client).choices[0].logprobs is None


def test_chat_logit_bias_bans_and_forces_token(client, raw):
    (quote,) = raw.post("/tokenize", json={"model": "caller", "prompt": '"'}).json()["tokens"]
    banned = chat(client, logit_bias={str(quote): -100}).choices[0].message.content
    assert '"' in chat(client).choices[0].message.content and '"' not in banned
    forced = chat(client, temperature=1, logit_bias={str(quote): 100}).choices[0].message.content
    assert forced == '"' * 8


@pytest.mark.parametrize(
    "more", [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"extra_body": {"repetition_penalty": 50}}]
)
def test_penalties_end_repetition(client, more):
    assert chat(client).choices[0].message.content == '"' * 8
    assert chat(client, **more).choices[0].message.content != '"' * 8


def test_chat_min_p_and_top_k_restrict_to_most_probable(client):
    greedy = chat(client).choices[0].message.content
    for more in ({"min_p": 1.0}, {"top_k": 1}):
        assert chat(client, temperature=1, extra_body=more).choices[0].message.content == greedy
    assert chat(client, temperature=1, top_p=1e-6).choices[0].message.content == greedy
    assert chat(client, temperature=1, top_p=0).choices[0].message.content == greedy


def test_parts_of_content_are_joined(client):
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "hello."}]
    response = chat(client, messages=[{"role": "user", "content": parts}])
    assert response.usage.prompt_tokens == chat(client).usage.prompt_tokens


def test_chat_developer_role_equals_system(client):
    reports = [
        chat(client, messages=[{"role": role, "content": "Be brief."}, *HELLO]).usage
        for role in ("developer", "system")
    ]
    assert reports[0].prompt_tokens == reports[1].prompt_tokens


def test_chat_neutral_fields_are_accepted(client):
    chat(client, user="me", metadata={"a": "b"}, store=False, service_tier="auto")


def test_chat_second_turn_reuses_cached_tokens(client):
    turn = [*HELLO, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "x" * 300}]
    chat(client, messages=turn)
    usage = chat(client, messages=[*turn[:-1], {"role": "user", "content": "x" * 300 + "y"}]).usage
    assert usage.prompt_tokens_details.cached_tokens > 250
