"""`/openapi.json`: the endpoints, from the types that validate their requests and those of their responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypedDict, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ..typing import JsonObject
from ..version import __version__
from .anthropic.response_types import AnthropicError
from .bodies import RequestBody
from .clients import run_in_thread
from .ollama.response_types import OllamaError
from .openai.response_types import ErrorBody
from .responses import JsonResponse, is_anthropic, is_ollama

REFERENCE = "#/components/schemas/{model}"
EVENT_STREAM, LINES = "text/event-stream", "application/x-ndjson"  # of OpenAI's API and of Ollama's


class Endpoint(NamedTuple):
    """A path, its handler, and the declarations of the body that it reads and of those that it writes."""

    path: str
    handler: Callable[[Request], Awaitable[Response]]
    method: str
    response: Any  # a TypedDict, or a union of them
    body: type[RequestBody] | None = None
    event: Any = None  # of a stream: the same


class OpenApiDocument(TypedDict, total=False):
    """The description of a server in OpenAPI 3.1."""

    openapi: str
    info: dict[str, str]
    paths: dict[str, dict[str, JsonObject]]
    components: dict[str, JsonObject]
    security: list[dict[str, list[str]]]


def openapi_document(endpoints: Sequence[Endpoint], with_keys: bool) -> OpenApiDocument:
    """Return the description of a server."""
    paths: dict[str, dict[str, JsonObject]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path.replace(":path", ""), {})[endpoint.method.lower()] = _operation(endpoint)
    document: OpenApiDocument = {
        "openapi": "3.1.0",
        "info": {"title": "webpte serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**request_schemas(endpoints), **response_schemas(endpoints)}},
    }
    if with_keys:
        document["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        document["security"] = [{"key": []}, {"header": []}]
    return document


def request_schemas(endpoints: Iterable[Endpoint]) -> JsonObject:
    """Return the schemas of the request bodies by name."""
    bodies = sorted({each.body for each in endpoints if each.body is not None}, key=lambda body: body.__name__)
    _, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=REFERENCE)
    return {name: _open(schema) for name, schema in definitions["$defs"].items()}


def _open(schema: JsonObject) -> JsonObject:
    """Return the schema of an object. Fields that it does not declare are ignored, unless the server is strict."""
    return {key: value for key, value in schema.items() if key != "additionalProperties"}


def response_schemas(endpoints: Iterable[Endpoint]) -> JsonObject:
    """Return the schemas of responses, events and errors by name."""
    types = {ErrorBody, OllamaError, AnthropicError}
    for endpoint in endpoints:
        types |= {*_members(endpoint.response), *_members(endpoint.event)}
    ordered = sorted(types, key=lambda type: str(type.__name__))
    adapters: list[tuple[Any, Any, TypeAdapter[Any]]] = [(type, "serialization", TypeAdapter(type)) for type in ordered]
    _, definitions = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)
    schemas: JsonObject = definitions["$defs"]
    return schemas


def _members(union: Any) -> tuple[Any, ...]:
    """Return the types of a union; a type itself is one member, and None has none."""
    return get_args(union) or ((union,) if union is not None else ())


def _media(declared: Any) -> JsonObject:
    """Return the description of a body."""
    references: list[Any] = [{"$ref": REFERENCE.format(model=type.__name__)} for type in _members(declared)]
    return {"schema": {"anyOf": references} if len(references) > 1 else references[0]}


def _operation(endpoint: Endpoint) -> JsonObject:
    ollama = is_ollama(endpoint.path)
    content: JsonObject = {"application/json": _media(endpoint.response)}
    if endpoint.event is not None:
        content[LINES if ollama else EVENT_STREAM] = _media(endpoint.event)
    form = OllamaError if ollama else AnthropicError if is_anthropic(endpoint.path) else ErrorBody
    error: JsonObject = {"application/json": _media(form)}
    operation: JsonObject = {
        "responses": {
            "200": {"description": "the response", "content": content},
            "default": {"description": "an error", "content": error},
        }
    }
    if "{name" in endpoint.path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if endpoint.body is not None:
        body: JsonObject = {endpoint.body.media_type: _media(endpoint.body)}
        operation["requestBody"] = {"required": True, "content": body}
    return operation


async def openapi(request: Request) -> Response:
    """Handle `GET /openapi.json`. The first request generates the schemas, which takes 0.3 s."""
    return JsonResponse(await run_in_thread(request, request.app.state.openapi))
