"""What frameworks send, as `tests/support/recordings/record.py` recorded it from their packages, and what they get."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.children import ROOT
from tests.support.harness.stand_in import Asked, StandIn, StandInCompiler
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.messages import ModelInfo

RECORDED = json.loads((ROOT / "tests" / "support" / "recordings" / "clients.json").read_text(encoding="utf-8"))
HERMES = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}
CITY = '{"city": "Oslo"}'
CALL = f'<tool_call>{{"name": "weather", "arguments": {CITY}}}</tool_call>'
NAMES = {"CHAT": "stand-in", "EMBEDDER": "encoder"}


class Words:
    """Tokenizes texts of an encoder."""

    def encode(self, texts: list[str], **_: object) -> list[list[int]]:
        return [[1] for _ in texts]

    def encode_text(self, text: str, prefix: object) -> tuple[list[int], int]:
        return [1], 1

    def prefix(self, *_: object) -> None: ...


class Answering(StandIn):
    """Calls the tool or follows the schema of a request, if it has one, and embeds texts."""

    async def embed(
        self, model: str, rows: Sequence[Sequence[int]], deadline: float | None = None, *_: Any
    ) -> np.ndarray:
        return np.ones((len(rows), 4), np.float32)


def replay(tmp_path: Path, entry: dict[str, Any]) -> Asked:
    body = entry["body"]
    if body is not None and "model" in body:
        body = body | {"model": NAMES[body["model"]]}
    asked = body or {}
    says = CALL if asked.get("tools") else CITY if asked.get("format") or asked.get("response_format") else "Hello."

    async def whole() -> Asked:
        backend = Answering(tmp_path, byte_level(), says, HERMES)
        backend.models["encoder"] = ModelInfo("encoder", "", "encoder", 16, 0, 4, 4, "f", 1)
        application = app(backend, Config(strict=False))
        async with application.router.lifespan_context(application):
            return await Asked(application, entry["path"], body).answer()

    return asyncio.run(whole())


def missing(expected: Any, actual: Any, place: str = "answer") -> list[str]:
    """Return where an answer lacks what a client reads: a field, an element, or a value of the type."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        lacks = [f"{place}.{name}" for name in expected if name not in actual]
        both = [name for name in expected if name in actual]
        return lacks + [each for name in both for each in missing(expected[name], actual[name], f"{place}.{name}")]
    if isinstance(expected, list) and isinstance(actual, list):
        if not expected:
            return []
        return missing(expected[0], actual[0], f"{place}[0]") if actual else [f"{place}[0]"]
    if expected is None or type(expected) is type(actual) or {type(expected), type(actual)} == {int, float}:
        return []
    return [f"{place}: {actual!r}, expected {type(expected).__name__}"]


def name_of(entry: dict[str, Any]) -> str:
    return re.sub(r"\W+", "_", f"{entry['client']} {entry['feature']}")


@pytest.mark.parametrize("entry", RECORDED, ids=map(name_of, RECORDED))
def test_recorded_request_is_answered_as_its_client_reads_it(tmp_path, monkeypatch, caplog, entry):
    monkeypatch.setattr("webpte.serve.served_models.SchemaCompiler", StandInCompiler)
    monkeypatch.setattr("webpte.serve.served_models.TextTokenizer.load", lambda path: Words())
    response = replay(tmp_path, entry)
    assert response.status == 200, response.body
    assert "unknown field" not in caplog.text
    expected = entry["answer"]
    if not isinstance(expected, list):
        assert missing(expected, response.json) == []
        return
    lines = response.body.decode().splitlines()
    events = [json.loads(line) for line in lines if line] if entry["path"].startswith("/api/") else response.events
    for event in expected:
        lacks = [missing(event, each) for each in events]
        assert [] in lacks, min(lacks, key=len)


def test_recorded_versions_are_those_of_the_page():
    page = (ROOT / "docs" / "serving-clients.md").read_text(encoding="utf-8")
    versions = {(entry["client"], entry["version"]) for entry in RECORDED}
    assert len(versions) == len({client for client, _ in versions})
    assert all(f"| `{client}` {version} " in page for client, version in versions)
