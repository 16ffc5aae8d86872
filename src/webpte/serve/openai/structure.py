"""What an answer has to follow: a JSON schema, or the calls that tools allow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...llm.tools import ToolFormat
from ..config import Config
from ..failures import Refusal
from ..words import Words
from .fields import Fields
from .tools import Offer, grammar

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def schema_of(format: Fields | None, config: Config) -> Mapping[str, Any] | None:
    """The schema that `response_format` asks for."""
    if format is None:
        return None
    kind = format.choice("type", ("text", "json_object", "json_schema"))
    schema = None
    if kind == "json_object":
        schema = ANY_OBJECT
    elif kind == "json_schema":
        about = format.inside("json_schema")
        schema = read_schema(about, config)
    format.end()
    return schema


def read_schema(about: Fields, config: Config) -> Mapping[str, Any]:
    """A named schema, of a size that is served."""
    about.text("name", None)
    about.text("description", None)
    about.flag("strict")  # answers always follow it
    schema = about.raw("schema", None)
    if not isinstance(schema, dict):
        raise about.wrong("schema", "a JSON schema, an object")
    if len(json.dumps(schema)) > config.max_schema_bytes:
        raise Refusal(
            422, f"{about.path('schema')} takes more than {config.max_schema_bytes} bytes (max_schema_bytes)",
            param=about.path("schema"),
        )  # fmt: skip
    about.end()
    return schema


def constrained(
    settings: dict[str, Any], offer: Offer, schema: Mapping[str, Any] | None, words: Words
) -> tuple[ToolFormat | None, tuple[str, ...]]:
    """Put the constraint among the settings; how calls are written, where there may be any, and the stops that are
    then looked for outside of calls."""
    if offer.choice == "none":
        if schema is not None:
            settings["json_schema"] = schema
        return None, ()
    format = words.tool_format
    if format is None:
        raise Refusal(
            400, "the model was not made to call tools, or its files do not tell how it writes calls", param="tools"
        )
    settings["grammar"] = grammar(offer, format, words.tokenizer, schema)
    return format, tuple(settings.pop("stop", ()))
