"""Reports of GPUs, judged by the schema that is published for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def check_result(report: Any) -> None:
    schema = json.loads((RESULTS / "schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    errors = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(report)]
    assert not errors, "\n".join(errors[:10])
