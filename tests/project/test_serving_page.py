"""docs/serving.md lists every status and endpoint, serving-clients.md the clients, configuration.md every field."""

from __future__ import annotations

import re

from docs._extensions.references import configuration
from tests.support.harness.children import ROOT
from webpte.serve.application import ROUTES
from webpte.serve.config import FIELDS
from webpte.serve.errors import STATUSES

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("serving-models", "operating")}
CLIENTS = (ROOT / "docs" / "serving-clients.md").read_text(encoding="utf-8")


def test_serving_page_lists_statuses():
    assert set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE)) == {str(status) for status in STATUSES}


def test_clients_of_the_page_have_the_versions_of_ci():
    pins = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    clients = re.findall(r"`(openai|anthropic|ollama)` ([\d.]+)", CLIENTS)
    assert [name for name, _ in clients] == ["openai", "anthropic", "ollama"]
    assert {f"{name}=={version}" for name, version in clients} <= set(pins)


def test_serving_page_lists_endpoints():
    for route in ROUTES:
        if "{" not in route.path:
            assert f"`{route.method} {route.path}`" in PAGE, route.path


def test_configuration_page_lists_fields():
    table = "\n".join(configuration())
    for name, one in FIELDS.items():
        assert f"| `{name}` |" in table and one.description is not None and one.description in table
    assert "<!-- configuration -->" in (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_fields_that_the_pages_name_exist():
    text = "".join([PAGE, *PAGES.values()])
    named = set(re.findall(r"`([a-z]+_(?:timeout|bytes|tokens|origins|queue))`", text))
    assert named - set(FIELDS) <= {"max_tokens", "budget_tokens", "input_tokens", "slot_bytes"} and named & set(FIELDS)
