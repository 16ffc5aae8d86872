"""`/docs`: a page of `/openapi.json` for people. It has no scripts, and names no model and no key."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from .clients import run_in_thread
from .openapi import OpenApiDocument

REFERENCE_PATH = "/docs"
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Frame-Options": "DENY"}
# Keyword of a schema -> how a bound is written.
BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "exclusiveMinimum": "> {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
}
STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
    "padding:0 1rem}table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #8886;padding:.3rem .6rem;"
    "text-align:left;vertical-align:top}code{font-size:.9em}"
)


async def reference(request: Request) -> Response:
    """Handle `GET /docs`."""
    page = await run_in_thread(request, lambda: reference_page(request.app.state.openapi()))
    return Response(page, media_type="text/html", headers=HEADERS)


def reference_page(document: OpenApiDocument) -> str:
    """Return the page of a description: its endpoints, then the objects that they read and write."""
    title = f"{document['info']['title']} {document['info']['version']}"
    schemas: dict[str, Any] = document["components"]["schemas"]
    return "".join(
        (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>',
            '<meta name="viewport" content="width=device-width">',
            f'<style>{STYLE}</style><h1>{escape(title)}</h1><p>The source is <a href="openapi.json">openapi.json</a>.',
            *_endpoints(document["paths"]),
            "<h2>Objects</h2>",
            *(part for name, schema in schemas.items() for part in _object(name, schema)),
            "</html>\n",
        )
    )


def _endpoints(paths: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "<h2>Endpoints</h2><table><tr><th>endpoint<th>request<th>response<th>stream</tr>"
    for path, methods in paths.items():
        for method, operation in methods.items():
            content = dict(operation["responses"]["200"]["content"])
            response = _type(content.pop("application/json")["schema"])
            streams = "".join(f"{_type(media['schema'])} ({escape(name)})" for name, media in content.items())
            request = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            name = f"<code>{method.upper()} {escape(path)}</code>"
            yield f"<tr><td>{name}<td>{_type(request) if request else ''}<td>{response}<td>{streams}</tr>"
    yield "</table>"


def _object(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}">{escape(name)}</h3>'
    if text := schema.get("description"):
        yield f"<p>{escape(text)}</p>"
    if "properties" not in schema:
        yield f"<p>{_type(schema)}</p>"
        return
    required = schema.get("required", ())
    yield "<table><tr><th>field<th>type<th>default</tr>"
    for field, declared in schema["properties"].items():
        optional = escape(repr(declared["default"])) if "default" in declared else ""
        default = "required" if field in required else optional
        yield f"<tr><td><code>{escape(field)}</code><td>{_type(declared)}<td>{default}</tr>"
    yield "</table>"


def _type(schema: Any) -> str:
    """Return the type of a value, with links to objects, and its bounds."""
    if not isinstance(schema, dict):
        return "any"
    bounds = [text.format(schema[name]) for name, text in BOUNDS.items() if name in schema]
    return ", ".join([_kind(schema), *map(escape, bounds)])


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(_type(each) for each in schema[union] if each.get("type") != "null")
    if "const" in schema or "enum" in schema:
        return " or ".join(f"<code>{escape(repr(value))}</code>" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items'))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "any")))
