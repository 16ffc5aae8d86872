"""`/openapi.json`: the endpoints and their request bodies, from the types that validate requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ..version import __version__
from .bodies import RequestBody
from .responses import JsonResponse

REFERENCE = "#/components/schemas/{model}"
ERROR = {
    "description": "an error; `param` names the invalid field",
    "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model="Error")}}},
}
ERROR_SCHEMA = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


class Endpoint(NamedTuple):
    """A path, its handler, and the declaration of the body that it reads."""

    path: str
    handler: Callable[[Request], Awaitable[Response]]
    method: str
    body: type[RequestBody] | None = None


def openapi_document(endpoints: Sequence[Endpoint], with_keys: bool) -> dict[str, Any]:
    """Return the description of a server in OpenAPI 3.1."""
    bodies = sorted({each.body for each in endpoints if each.body is not None}, key=lambda body: body.__name__)
    _, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=REFERENCE)
    schemas = {name: _open(schema) for name, schema in definitions["$defs"].items()}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path.replace(":path", ""), {})[endpoint.method.lower()] = _operation(endpoint)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "webpte serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**schemas, "Error": ERROR_SCHEMA}},
    }
    if with_keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _open(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object. Fields that it does not declare are ignored, unless the server is strict."""
    return {key: value for key, value in schema.items() if key != "additionalProperties"}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {"responses": {"200": {"description": "the response"}, "default": ERROR}}
    if "{name" in endpoint.path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if endpoint.body is not None:
        reference = {"$ref": REFERENCE.format(model=endpoint.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    return operation


async def openapi(request: Request) -> Response:
    """Handle `GET /openapi.json`."""
    return JsonResponse(request.app.state.openapi)
