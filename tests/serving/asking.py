"""Requests to the server, and the keys of the tests."""

from __future__ import annotations

from typing import Any

KEYS = {"good": "sk-correct-horse", "other": "sk-battery-staple"}
HELLO = [{"role": "user", "content": "Say hello."}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 16},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
        },
    },
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
}


def in_schema(schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def chat(client, **more: Any) -> Any:
    return client.chat.completions.create(
        **({"model": "caller", "messages": HELLO, "max_tokens": 8, "temperature": 0, "seed": 3} | more)
    )
