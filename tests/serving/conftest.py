"""One server for all tests of this folder: a model that calls tools, and an encoder."""

from __future__ import annotations

from pathlib import Path

import httpx
import openai
import pytest

from tests.serving.asking import KEYS
from tests.support.harness.serving import Running
from tests.support.models.caller_files import write_caller
from tests.support.models.task_checkpoints import exported


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    program = write_caller(tmp_path_factory.mktemp("served"))
    encoder = exported("bert") / "model.pte"
    keys = {"WEBPTE_SERVE_API_KEYS": ",".join(KEYS.values())}
    limits = ("--max-body-bytes", 100_000, "--max-output-tokens", 1200, "--cors-origins", "https://page.example")
    patience = ("--schema-timeout", 60, "--queue-timeout", 600, "--ttft-timeout", 600)  # of a busy machine
    with Running(program, f"bert={encoder}", *limits, *patience, environment=keys) as running:
        headers = {"Authorization": f"Bearer {KEYS['good']}"}
        for path, name in (("generate", Path(program).stem), ("embed", "bert")):  # load both
            loaded = httpx.post(f"{running.url}/api/{path}", json={"model": name}, headers=headers, timeout=240)
            assert loaded.status_code == 200, loaded.text
        yield running


@pytest.fixture(scope="package")
def client(server):
    with openai.OpenAI(base_url=server.api, api_key=KEYS["good"], max_retries=0, timeout=240) as connection:
        yield connection


@pytest.fixture(scope="package")
def raw(server):
    headers = {"Authorization": f"Bearer {KEYS['good']}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=240) as connection:
        yield connection
