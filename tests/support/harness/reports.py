"""Reports of commands, judged by the schemas that are published for them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema

from webpte.cli import main

from .children import SRC

SCHEMAS = SRC / "webpte" / "cli" / "schemas"


@cache
def validator(name: str) -> Any:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def check_report(name: str, report: object) -> None:
    errors = [f"{error.json_path}: {error.message[:300]}" for error in validator(name).iter_errors(report)]
    assert not errors, "\n".join(errors[:10])


def reported(capsys: Any, *arguments: object, schema: str | None = None) -> Any:
    """Return a command's output with --json, checked against its schema."""
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest_fail(name))
    check_report(schema or str(arguments[0]), report)
    return report


def pytest_fail(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
