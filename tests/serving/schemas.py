"""Answers by random schemas and calls of tools, by HTTP: see `python -m tests.serving schemas`."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import jsonschema

from tests.studies.schemas.making import schema
from tests.support.harness.serving import Running

AT_ONCE = 8
MAX_NEW_TOKENS = 1200
TOOLS = ("look_up", "send", "add-2")  # offered together


def bounded() -> Iterator[dict[str, Any]]:
    """Random schemas but those with numbers, whose digits may continue for ever."""
    for seed in itertools.count():
        result = schema(seed)
        if '"number"' not in json.dumps(result):
            yield result


def by_schema(model: str, number: int, expected: dict[str, Any]) -> dict[str, Any]:
    format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": expected}}
    return _body(model, number) | {"response_format": format}


def by_tools(model: str, number: int, expected: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": each}}
        for name, each in zip(TOOLS, expected, strict=True)
    ]
    named = {"type": "function", "function": {"name": TOOLS[number % 3]}}
    choice = (named, "required", "auto")[number % 3] if number % 2 else "required"
    return _body(model, number) | {"tools": tools, "tool_choice": choice, "parallel_tool_calls": number % 5 == 0}


def _body(model: str, number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Make up example {number}."}]
    drawn = {"temperature": 0.8, "seed": number} if number % 2 else {"temperature": 0}
    return {"model": model, "messages": messages, "max_tokens": MAX_NEW_TOKENS, **drawn}


def wrong_answer(actual: dict[str, Any], expected: dict[str, Any]) -> str | None:
    """Return what is wrong with an answer by a schema."""
    (choice,) = actual["choices"]
    if choice["finish_reason"] != "stop":
        return f"ended by {choice['finish_reason']}"
    return _judged(choice["message"]["content"], expected)


def wrong_calls(actual: dict[str, Any], expected: Sequence[dict[str, Any]], choice: Any) -> str | None:
    """Return what is wrong with the calls of an answer; with `auto` there may be none."""
    (said,) = actual["choices"]
    calls = said["message"].get("tool_calls") or []
    if choice != "auto" and (not calls or said["finish_reason"] != "tool_calls"):
        return f"{len(calls)} calls, ended by {said['finish_reason']}"
    if isinstance(choice, dict) and [call["function"]["name"] for call in calls] != [choice["function"]["name"]]:
        return "not the function that was named"
    schemas = dict(zip(TOOLS, expected, strict=True))
    judged = (_judged(call["function"]["arguments"], schemas[call["function"]["name"]]) for call in calls)
    return next((why for why in judged if why is not None), None)


def _judged(text: str, expected: dict[str, Any]) -> str | None:
    try:
        jsonschema.validate(json.loads(text), expected)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


async def ask_all(url: str, model: str, schemas: int, tools: int, key: str = "none") -> tuple[list[str], int]:
    """Return what is wrong with the answers, and how many calls there were."""
    result = bounded()
    asked: list[tuple[dict[str, Any], Any]] = []
    for number in range(schemas):
        expected = next(result)
        asked.append((by_schema(model, number, expected), expected))
    for number in range(tools):
        several = [next(result) for _ in TOOLS]
        asked.append((by_tools(model, number, several), several))
    room, calls = asyncio.Semaphore(AT_ONCE), 0

    async def one(client: httpx.AsyncClient, body: dict[str, Any], expected: Any) -> str | None:
        nonlocal calls
        async with room:
            response = await client.post("/v1/chat/completions", json=body)
        if response.status_code != 200:
            return f"status {response.status_code}: {response.text}"
        if "tools" not in body:
            return wrong_answer(response.json(), expected)
        calls += len(response.json()["choices"][0]["message"].get("tool_calls") or [])
        return wrong_calls(response.json(), expected, body["tool_choice"])

    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=600) as client:
        response = await asyncio.gather(*(one(client, body, expected) for body, expected in asked))
    return [f"{why}\n  asked {json.dumps(body)}" for why, (body, _) in zip(response, asked, strict=True) if why], calls


def show(path: str, schemas: int, tools: int) -> int:
    with Running(f"m={path}", "--request-timeout", 3600, "--queue-timeout", 3600) as running:
        wrong, calls = asyncio.run(ask_all(running.url, "m", schemas, tools))
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{schemas} schemas, {tools} requests with tools, {calls} calls: {schemas + tools - len(wrong)} valid")
    return int(bool(wrong))
