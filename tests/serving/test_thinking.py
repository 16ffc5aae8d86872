"""A model that thinks, over HTTP: the reasoning is a channel of its own in all APIs."""

from __future__ import annotations

import json

import anthropic
import httpx
import ollama
import openai
import pytest

from tests.serving.asking import HELLO, in_schema
from tests.support.harness.api_schemas import check_response
from tests.support.harness.serving import Running
from tests.support.models.thinker import REASONING, TEXT, write_thinker

pytestmark = pytest.mark.gpu

CALL = '{"name": "now", "arguments": {}}'
CALL_THOUGHT = ("I could call", " <tool_call>" + CALL, " </tool_call>.")
TOOL = {"name": "now", "parameters": {"type": "object", "properties": {}}}
TOOL_FORMAT = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}
TOOL_TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    "<|im_start|>assistant\n{# <think></think> #}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thinker")
    thinker = write_thinker(folder)
    words = ("\n\n", "<tool_call>", CALL, "</tool_call>")
    caller = write_thinker(folder, "caller", TOOL_TEMPLATE, CALL_THOUGHT, words)
    config = caller.with_name("caller.tokenizer_config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tool_format": TOOL_FORMAT}))
    with Running(thinker, caller) as running:
        yield running


def checked(response: httpx.Response) -> None:
    """Check a response against `/openapi.json`."""
    response.read()
    media = response.headers["content-type"]
    path = response.request.url.path
    assert check_response(response.request.method, path, response.status_code, media, response.text)


@pytest.fixture(scope="module")
def raw(server):
    with httpx.Client(base_url=server.url, timeout=240, event_hooks={"response": [checked]}) as connection:
        yield connection


@pytest.fixture(scope="module")
def client(server):
    http = openai.DefaultHttpxClient(event_hooks={"response": [checked]}, timeout=240)
    with openai.OpenAI(base_url=server.api, api_key="none", max_retries=0, http_client=http) as connection:
        yield connection


def chat(client, model="thinker", **more):
    return client.chat.completions.create(model=model, messages=HELLO, **more)


def test_chat_message_has_reasoning_content(client):
    response = chat(client, logprobs=True)
    message = response.choices[0].message
    assert (message.content, message.reasoning_content) == (TEXT, REASONING)
    usage = response.usage
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens
    assert "".join(entry.token for entry in response.choices[0].logprobs.content) == TEXT


def test_chat_stream_has_reasoning_deltas_before_content(client):
    deltas = [chunk.choices[0].delta for chunk in chat(client, stream=True)]
    thoughts = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    texts = [delta.content or "" for delta in deltas]
    assert ("".join(thoughts), "".join(texts)) == (REASONING, TEXT)
    assert max(at for at, thought in enumerate(thoughts) if thought) < texts.index("Good")


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "none"},
        {"extra_body": {"enable_thinking": False}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"extra_body": {"thinking_budget": 0}},
    ],
)
def test_chat_without_thinking_has_no_reasoning(client, more):
    message = chat(client, **more).choices[0].message
    assert message.content == TEXT and not hasattr(message, "reasoning_content")


def test_chat_schema_and_stop_hold_for_the_answer_only(client):
    schema = in_schema({"enum": ["Good morning!", "No"]})
    message = chat(client, response_format=schema, extra_body={"thinking_budget": 2}).choices[0].message
    assert (json.loads(message.content), message.reasoning_content) in (
        ("Good morning!", "The user greets"),
        ("No", "The user greets"),
    )
    message = chat(client, stop=[" greets", " morning"]).choices[0].message
    assert (message.content, message.reasoning_content) == ("Good", REASONING)


@pytest.mark.parametrize("stream", [False, True])
def test_tool_call_in_a_thought_is_text(client, stream):
    response = chat(client, "caller", tools=[{"type": "function", "function": TOOL}], stream=stream)
    if stream:
        deltas = [chunk.choices[0].delta for chunk in response]
        calls = [call for delta in deltas for call in delta.tool_calls or ()]
        thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        content = "".join(delta.content or "" for delta in deltas)
    else:
        message = response.choices[0].message
        calls, thought, content = message.tool_calls, message.reasoning_content, message.content or ""
    assert [(call.function.name, call.function.arguments) for call in calls] == [("now", "{}")]
    assert (thought, content) == ("".join(CALL_THOUGHT), "")


def test_earlier_reasoning_reaches_the_template(raw):
    turn = {"role": "assistant", "content": TEXT}
    bodies = [{**turn, "reasoning_content": "x" * 40}, {**turn, "reasoning": "x" * 40}, turn]
    counts = [
        raw.post("/tokenize", json={"model": "thinker", "messages": [*HELLO, body, *HELLO]}).json()["count"]
        for body in bodies
    ]
    assert counts[0] == counts[1] == counts[2] + 42


def test_response_has_a_reasoning_item(client):
    response = client.responses.create(model="thinker", input="Hi")
    thought, message = response.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", REASONING, [])
    assert (message.type, response.output_text) == ("message", TEXT)
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    again = [{"role": "user", "content": "Hi"}, *(item.to_dict() for item in response.output), *HELLO]
    assert client.responses.create(model="thinker", input=again).output_text == TEXT
    quick = client.responses.create(model="thinker", input="Hi", reasoning={"effort": "none"})
    assert [item.type for item in quick.output] == ["message"]


def test_response_stream_opens_and_closes_a_reasoning_item(client):
    events = list(client.responses.create(model="thinker", input="Hi", stream=True))
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert (thought, text) == (REASONING, TEXT)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    added = [event.item.type for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert added == [item.type for item in done] == ["reasoning", "message"]
    assert done[0].content[0].text == REASONING and events[-1].response.output == done


def test_response_cut_inside_the_thought_is_incomplete(client):
    response = client.responses.create(model="thinker", input="Hi", max_output_tokens=3)
    assert response.status == "incomplete" and response.output_text == ""
    assert response.output[0].content[0].text == "The user greets"
    *_, last = client.responses.create(model="thinker", input="Hi", max_output_tokens=3, stream=True)
    assert last.type == "response.incomplete" and [item.type for item in last.response.output] == [
        "reasoning",
        "message",
    ]


@pytest.fixture(scope="module")
def messages(server):
    http = anthropic.DefaultHttpxClient(event_hooks={"response": [checked]}, timeout=240)
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, http_client=http) as connection:
        yield connection.messages


ENABLED = {"type": "enabled", "budget_tokens": 1024}
MESSAGE = {"model": "thinker", "messages": HELLO, "max_tokens": 100}


@pytest.mark.parametrize("thinking", [ENABLED, {"type": "adaptive"}])
def test_message_has_a_thinking_block(messages, thinking):
    response = messages.create(**MESSAGE, thinking=thinking)
    thought, text = response.content
    assert (thought.type, thought.thinking, text.text) == ("thinking", REASONING, TEXT)
    assert 0 < response.usage.output_tokens_details.thinking_tokens < response.usage.output_tokens
    turns = [*HELLO, {"role": "assistant", "content": response.content}, *HELLO]
    without = [*HELLO, {"role": "assistant", "content": [text]}, *HELLO]
    counts = [messages.count_tokens(model="thinker", messages=each).input_tokens for each in (turns, without)]
    assert counts[0] > counts[1]  # the template has the earlier thought
    assert messages.create(**MESSAGE | {"messages": turns}, thinking=thinking).content[-1].text == TEXT


def test_message_stream_has_the_thought_before_the_text(messages):
    with messages.stream(**MESSAGE, thinking=ENABLED) as stream:
        kinds = [event.content_block.type for event in stream if event.type == "content_block_stop"]
        final = stream.get_final_message()
    thought, text = final.content
    assert kinds == [thought.type, text.type] == ["thinking", "text"]
    assert (thought.thinking, text.text) == (REASONING, TEXT)
    assert thought.signature == messages.create(**MESSAGE, thinking=ENABLED).content[0].signature


@pytest.mark.parametrize("more", [{}, {"thinking": {"type": "disabled"}}])
def test_message_without_thinking_has_text_only(messages, more):
    assert [block.text for block in messages.create(**MESSAGE, **more).content] == [TEXT]


def test_message_thought_ends_at_its_budget(messages):
    thinking = {"type": "enabled", "budget_tokens": 2}
    assert messages.create(**MESSAGE, thinking=thinking).content[0].thinking == "The user greets"


@pytest.fixture(scope="module")
def local(server):
    with ollama.Client(server.url, timeout=240, event_hooks={"response": [checked]}) as connection:
        yield connection


def test_ollama_chat_has_thinking(local):
    whole = local.chat("thinker", HELLO).message
    assert (whole.content, whole.thinking) == (TEXT, REASONING)
    parts = [part.message for part in local.chat("thinker", HELLO, stream=True)]
    assert "".join(part.thinking or "" for part in parts) == REASONING
    assert "".join(part.content or "" for part in parts) == TEXT
    without = local.chat("thinker", HELLO, think=False).message
    assert (without.content, without.thinking) == (TEXT, None)


def test_ollama_generate_has_thinking(local):
    whole = local.generate("thinker", "Hi", think=True)
    assert (whole.response, whole.thinking) == (TEXT, REASONING)
    parts = list(local.generate("thinker", "Hi", think=True, stream=True))
    assert "".join(part.thinking or "" for part in parts) == REASONING
    assert "".join(part.response for part in parts) == TEXT


def test_ollama_show_names_the_capability(local):
    assert "thinking" in local.show("thinker").capabilities


def test_completion_is_not_split(client):
    prompt = "<|im_start|>assistant\n"
    response = client.completions.create(model="thinker", prompt=prompt, extra_body={"parse_special": True})
    assert response.choices[0].text.startswith("<think>") and response.choices[0].text.endswith(TEXT)


@pytest.mark.parametrize("more", [{"thinking_budget": -1}, {"reasoning_effort": "much"}, {"enable_thinking": "yes"}])
def test_invalid_field_of_thinking_is_refused(raw, more):
    response = raw.post("/v1/chat/completions", json={"model": "thinker", "messages": HELLO, **more})
    assert response.status_code == 400 and next(iter(more)) in response.json()["error"]["param"]
