"""docs/serving.md tells of every status, endpoint and field, and of no other."""

from __future__ import annotations

import dataclasses
import re

from docs._extensions.references import serving
from tests.support.harness.children import ROOT
from webpte.serve.application import ROUTES
from webpte.serve.config import Config
from webpte.serve.failures import KINDS

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_every_status_is_told():
    assert set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE)) == {str(status) for status in KINDS}


def test_every_endpoint_is_told():
    for path, _, method in ROUTES:
        if "{" not in path:
            assert f"`{method} {path}`" in PAGE, path


def test_every_field_is_in_the_table():
    table = "\n".join(serving())
    for one in dataclasses.fields(Config):
        assert f"| `{one.name}` |" in table and one.metadata["told"] in table
    assert "<!-- serving -->" in PAGE


def test_fields_that_the_page_names_exist():
    fields = {one.name for one in dataclasses.fields(Config)}
    named = set(re.findall(r"`([a-z]+_(?:seconds|bytes|tokens|origins|queue))`", PAGE))
    assert named - fields <= {"max_tokens"} and named & fields
