"""Chats as OpenAI's client sees them: a real process, a real worker, real HTTP."""

from __future__ import annotations

import openai
import pytest

from tests.serving.asking import HELLO, chat

pytestmark = pytest.mark.gpu


def test_a_chat_is_answered(client):
    found = chat(client)
    assert found.object == "chat.completion" and found.id.startswith("chatcmpl-") and found.model == "caller"
    (choice,) = found.choices
    assert choice.index == 0 and choice.message.role == "assistant" and choice.finish_reason == "length"
    assert isinstance(choice.message.content, str) and choice.message.content and choice.message.tool_calls is None
    assert found.usage.completion_tokens == 8 and found.usage.prompt_tokens > 10
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_a_stream_says_the_same(client):
    chunks = list(chat(client, stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == chat(client).choices[0].message.content


def test_usage_comes_last_where_it_is_asked_for(client):
    *chunks, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == [] and last.usage.completion_tokens == 8
    assert last.usage.total_tokens == last.usage.prompt_tokens + 8
    assert all(chunk.usage is None for chunk in chunks)


def test_the_same_seed_draws_the_same_and_another_does_not(client):
    def drawn(seed):
        return chat(client, temperature=1, seed=seed, max_tokens=24).choices[0].message.content

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(2**40 + 1) == drawn(2**40 + 1)


def test_without_a_seed_answers_differ(client):
    texts = {chat(client, temperature=1, seed=openai.omit, max_tokens=24).choices[0].message.content for _ in range(3)}
    assert len(texts) == 3


def test_several_choices(client):
    found = chat(client, n=3, temperature=1, seed=5, max_tokens=16)
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in found.choices]
    assert (
        len(set(texts)) == 3
        and texts[0] == chat(client, temperature=1, seed=5, max_tokens=16).choices[0].message.content
    )
    assert found.usage.completion_tokens <= 48 and found.usage.prompt_tokens == chat(client).usage.prompt_tokens


def test_several_choices_in_one_stream(client):
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


def test_a_stop_ends_before_itself(client):
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
        assert tops == sorted(tops, reverse=True) and entry.logprob == pytest.approx(tops[0])  # the likeliest was taken
        assert bytes(entry.bytes).decode() == entry.token


def test_logprobs_in_a_stream(client):
    whole = chat(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    found = []
    for chunk in chat(client, logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices[0].logprobs is not None:
            found += chunk.choices[0].logprobs.content
    assert found == whole


def test_without_logprobs_there_are_none(client):
    assert chat(client).choices[0].logprobs is None


def test_a_bias_bans_and_forces(client, raw):
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


def test_min_p_and_top_k_keep_the_likeliest(client):
    greedy = chat(client).choices[0].message.content
    for more in ({"min_p": 1.0}, {"top_k": 1}):
        assert chat(client, temperature=1, extra_body=more).choices[0].message.content == greedy
    assert chat(client, temperature=1, top_p=1e-6).choices[0].message.content == greedy
    assert chat(client, temperature=1, top_p=0).choices[0].message.content == greedy


def test_parts_of_content_are_joined(client):
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "hello."}]
    found = chat(client, messages=[{"role": "user", "content": parts}])
    assert found.usage.prompt_tokens == chat(client).usage.prompt_tokens


def test_a_developer_is_the_system(client):
    told = [
        chat(client, messages=[{"role": role, "content": "Be brief."}, *HELLO]).usage
        for role in ("developer", "system")
    ]
    assert told[0].prompt_tokens == told[1].prompt_tokens


def test_what_changes_nothing_is_taken(client):
    chat(client, user="me", metadata={"a": "b"}, store=False, service_tier="auto")


def test_a_second_turn_reuses_the_first(client):
    turn = [*HELLO, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "x" * 300}]
    chat(client, messages=turn)
    usage = chat(client, messages=[*turn[:-1], {"role": "user", "content": "x" * 300 + "y"}]).usage
    assert usage.prompt_tokens_details.cached_tokens > 250
