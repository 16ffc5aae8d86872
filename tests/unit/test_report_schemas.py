"""The schemas of reports are generated from their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from tests.support.harness.report_schemas import REPORTS, report_schema, schema_text
from tests.support.harness.reports import SCHEMAS


class Point(TypedDict):
    """A place."""

    x: Annotated[float | str, "to the right", {"default": 0}]
    tags: NotRequired[dict[str, list[int]]]


@dataclass(frozen=True)
class Drawing:
    """Two places."""

    first: Point
    last: Annotated[Point | None, "where it ends"]
    kind: Literal["line", "arc"]
    note: Any


POINT = {
    "type": "object",
    "properties": {
        "x": {"type": ["number", "string"], "description": "to the right", "default": 0},
        "tags": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
    },
    "required": ["x"],
    "additionalProperties": False,
}


def test_report_schema_shared_object_is_a_definition():
    schema = report_schema("drawings", Drawing)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$defs"] == {"Point": POINT}
    assert schema["properties"] == {
        "first": {"$ref": "#/$defs/Point"},
        "last": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "description": "where it ends"},
        "kind": {"enum": ["line", "arc"]},
        "note": {},
    }


def test_report_schema_object_used_once_is_inline():
    schema = report_schema("points", list[Point | None])
    assert schema["items"] == {**POINT, "type": ["object", "null"]} and "$defs" not in schema


@pytest.mark.parametrize("kind", [set[str], tuple[int, str], bytes])
def test_report_schema_type_without_json_raises(kind):
    with pytest.raises(TypeError, match="report"):
        report_schema("odd", kind)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_committed_schema_equals_the_generated_one(path):
    assert path.read_text(encoding="utf-8") == schema_text(path), (
        "run python -m tests.support.harness.report_schemas --write"
    )


def test_report_schema_files_are_generated():
    assert {path for path in REPORTS if path.parent == SCHEMAS} == set(SCHEMAS.glob("*.json"))
