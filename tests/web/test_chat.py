"""Chats in a page and in Node: the tokens of the native player, alone and in company, after any device loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from playwright.sync_api import Browser

import webpte
from tests.support.harness.browser import TIMEOUT
from tests.support.harness.gate import slow_but
from tests.support.harness.node import node_page
from tests.support.harness.site_server import serving
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.llm import LLM

from .calls import Host, load
from .conftest import WEB

ASK = """async (requests) => {
  const found = await Promise.allSettled(requests.map((request) => {
    const kind = request.messages ? globalThis.model.chat.completions : globalThis.model.completions;
    return kind.create({ ...request, return_token_ids: true });
  }));
  return found.map(({ value, reason }) => value ?? { code: reason.code, message: reason.message });
}"""
PROMPTS = ["Hello", "the quick brown fox jumps over", "a", "What is it? " * 3]
ASKED: list[dict[str, Any]] = [
    {"max_tokens": 20},
    {"max_tokens": 24, "temperature": 0.8, "seed": 7},
    {"max_tokens": 24, "temperature": 1.2, "seed": 3, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    {"max_tokens": 24, "repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"max_tokens": 12, "temperature": 0.9, "seed": 11, "logit_bias": {"65": 4.0, "66": -100.0}},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tiny_llm(tmp_path_factory.mktemp("tiny"))
    with webpte.load(folder / "tiny.pte") as program:
        webpte.bundle(program, folder / "site", name="tiny", sequences=4)
    return folder


@pytest.fixture(scope="module")
def native(tiny: Path) -> Iterator[LLM]:
    with LLM.load(tiny / "tiny.pte", max_sequences=4) as llm:
        yield llm


@pytest.fixture(scope="module", params=["page", "node"])
def chat(tiny: Path, browser: Browser, node_modules: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    """Yield a page or Node with the model loaded, for all tests: each asks something else of it."""
    with serving({"web": WEB, "site": tiny / "site"}) as site:
        if request.param == "node":
            with node_page() as node:
                load(node, f"{site.origin}/site/")
                yield node
            return
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(f"{site.origin}/blank.html")
        load(page, f"{site.origin}/site/")
        yield page
        context.close()


def _natively(llm: LLM, prompt: str, asked: dict[str, Any]) -> list[int]:
    settings = {**asked, "max_new_tokens": asked["max_tokens"]}
    del settings["max_tokens"]
    if "logit_bias" in settings:
        settings["logit_bias"] = {int(token): bias for token, bias in settings["logit_bias"].items()}
    answer = llm.complete(prompt, speculate=False, **settings)
    answer.result()
    return answer.tokens


def _tokens(answers: list[Any]) -> list[list[int]]:
    return [answer["choices"][0]["token_ids"] for answer in answers]


@pytest.mark.parametrize("turns", slow_but([1], [1, len(PROMPTS)]))
def test_tokens_equal_native_player(chat, native, turns):
    """Every request of ASKED once for each of `turns`, with another prompt in each."""
    pairs = [(PROMPTS[(turn + at) % len(PROMPTS)], asked) for turn in range(turns) for at, asked in enumerate(ASKED)]
    requests = [{"prompt": prompt, **asked} for prompt, asked in pairs]
    expected = [_natively(native, prompt, asked) for prompt, asked in pairs]
    one_by_one = [chat.evaluate(ASK, [request])[0] for request in requests]
    assert _tokens(one_by_one) == expected
    assert _tokens(chat.evaluate(ASK, requests)) == expected  # four at a time, each with its own settings


LOSE = """async ([request, moments]) => {
  const stream = await globalThis.model.completions.create({ ...request, stream: true, return_token_ids: true });
  const tokens = [];
  if (moments.includes(0)) globalThis.model.loseDevice(); // while the prompt is read
  for await (const { choices } of stream) {
    tokens.push(...choices[0].token_ids);
    if (moments.includes(tokens.length)) globalThis.model.loseDevice();
  }
  return tokens;
}"""


@pytest.mark.parametrize("moment", slow_but([5], [0, 5]))
def test_generate_device_lost_same_tokens(chat, native, moment):
    """A recovery compiles all kernels again: seconds, on SwiftShader."""
    prompt, asked = PROMPTS[1], {"max_tokens": 24}
    expected = _natively(native, prompt, asked)
    lost = chat.evaluate("globalThis.model.recoveries") + 1
    assert chat.evaluate(LOSE, [{"prompt": prompt, **asked}, [moment]]) == expected
    chat.wait_for_function("(lost) => globalThis.model.recoveries === lost", arg=lost)


STOP = """async ([request, count]) => {
  const stop = new AbortController();
  let seen = 0;
  try {
    const creating = globalThis.model.completions.create({ ...request, stream: true, signal: stop.signal });
    if (!count) stop.abort();
    for await (const _ of await creating) if (++seen === count) stop.abort();
    return { code: null, seen };
  } catch (error) {
    return { code: error.code, seen };
  }
}"""


@pytest.mark.parametrize("count", [0, 1, 5])
def test_generate_cancelled_ends_and_next_is_exact(chat, native, count):
    result = chat.evaluate(STOP, [{"prompt": PROMPTS[1], "max_tokens": 30}, count])
    assert result == {"code": "aborted", "seen": count}
    (after,) = chat.evaluate(ASK, [{"prompt": PROMPTS[0], "max_tokens": 8}])
    assert _tokens([after]) == [_natively(native, PROMPTS[0], {"max_tokens": 8})]


STREAM = """async (request) => {
  const chunks = [];
  const asked = { ...request, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await globalThis.model.chat.completions.create(asked)) chunks.push(chunk);
  return chunks;
}"""


def test_chat_streams_same_text_as_native(chat, native):
    messages = [{"role": "user", "content": "hi <there>"}]
    answer = native.generate(messages, max_new_tokens=10, logprobs=True, top_logprobs=3)
    pieces = list(answer)
    chunks = chat.evaluate(STREAM, {"messages": messages, "max_tokens": 10, "top_logprobs": 3})
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == answer.text
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 10 + ["length"]
    likelihoods = [chunk["choices"][0]["logprobs"]["content"][0] for chunk in chunks[1:-1]]
    assert [result["bytes"] for result in likelihoods] == [[piece.token] for piece in pieces]
    for result, piece in zip(likelihoods, pieces, strict=True):
        assert result["logprob"] == pytest.approx(piece.logprob, abs=1e-4)
        tops = [(entry["bytes"][0], pytest.approx(entry["logprob"], abs=1e-4)) for entry in result["top_logprobs"]]
        assert list(piece.top_logprobs) == tops
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (answer.usage.prompt_tokens, 10)
    assert chat.evaluate("(messages) => globalThis.model.countTokens(messages)", messages) == answer.usage.prompt_tokens


def test_answers_follow_a_schema(chat):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
        "additionalProperties": False,
    }
    expected = {"type": "json_schema", "json_schema": {"schema": schema}}
    requests = [{"prompt": "x", "response_format": expected, "temperature": 1, "seed": seed} for seed in range(6)]
    for answer in chat.evaluate(ASK, requests):
        (choice,) = answer["choices"]
        jsonschema.validate(json.loads(choice["text"]), schema)
        assert choice["finish_reason"] == "stop"


def test_request_wrong_field_error_names_it(chat):
    requests = [{"prompt": "x", "temperature": -1}, {"prompt": "x" * 64}, {"prompt": "x", "tools": []}]
    requests += [{"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}]
    result = chat.evaluate(ASK, requests)
    assert [answer["code"] for answer in result] == ["input"] * 4
    for answer, words in zip(result, ("temperature: ", "context of 64", 'got "tools"', "not is not"), strict=True):
        assert words in answer["message"]
