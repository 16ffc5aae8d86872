"""Responses of the server against the schemas that its `/openapi.json` states, without fields that these do not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema

from webpte.serve.application import ROUTES
from webpte.serve.openapi import EVENT_STREAM, LINES, openapi_document
from webpte.serve.responses import is_anthropic


@cache
def _closed_document() -> dict[str, Any]:
    """Return the description of a server, whose objects allow declared fields only."""
    document: dict[str, Any] = json.loads(json.dumps(openapi_document(ROUTES, with_keys=False)))
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return document


@cache
def _validator(method: str, path: str, status: str, media: str) -> jsonschema.Draft202012Validator:
    document = _closed_document()
    response = document["paths"][path][method.lower()]["responses"][status]
    return jsonschema.Draft202012Validator(
        {**response["content"][media]["schema"], "components": document["components"]}
    )


def described_path(method: str, path: str) -> str | None:
    """Return the path of the endpoint that answers a request, as `/openapi.json` spells it."""
    for route in ROUTES:
        pattern = re.sub(r"\\{name:path\\}", ".+", re.escape(route.path))
        if route.method == method and re.fullmatch(pattern, path):
            return route.path.replace(":path", "")
    return None


def _bodies(media: str, text: str) -> Iterator[Any]:
    """Yield the JSON objects of a response or a stream."""
    if media == EVENT_STREAM:
        lines = (line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: {"))
        yield from map(json.loads, lines)
    elif media == LINES:
        yield from map(json.loads, text.splitlines())
    else:
        yield json.loads(text)


def check_response(method: str, path: str, status: int, media: str, text: str) -> int:
    """Return how many objects of a response are valid: 0 if `/openapi.json` does not describe the endpoint. The error
    that may end a stream is validated as one."""
    described = described_path(method, path)
    if described is None:
        return 0
    count = 0
    media = media.partition(";")[0]
    for body in _bodies(media, text):
        failed = status != 200 or bool(body.get("error"))
        if failed and media == EVENT_STREAM and not is_anthropic(path):  # OpenAI's event has a type besides
            body = {"error": body["error"]}
        kind = "application/json" if failed else media
        _validator(method, described, "default" if failed else "200", kind).validate(body)
        count += 1
    return count
