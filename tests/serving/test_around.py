"""Health, metrics, logs and pages of others; and ExecuTorch's own tests of such servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.serving.asking import KEYS, chat
from tests.support.harness.serving import Running, until
from tests.support.models.caller_files import write_caller

pytestmark = pytest.mark.gpu


def test_health_needs_no_key(server):
    response = httpx.get(f"{server.url}/health")
    assert response.status_code == 200 and response.json()["status"] == "ready"


def test_metrics_count(raw, client):
    def value(name):
        lines = raw.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    names = (
        "webpte_completion_tokens_total",
        "webpte_first_token_seconds_count",
        "webpte_between_tokens_seconds_count",
    )
    before = [value(name) for name in names]
    chat(client)
    assert [value(name) - earlier for name, earlier in zip(names, before, strict=True)] == [8, 1, 7]
    for name in ("webpte_queued", "webpte_busy"):
        assert value(name) == 0
    until(lambda: value("webpte_steps_total") > 0, "passes, of which a worker tells when it is pinged, once a second")
    assert value("webpte_slots") >= 1 and value("webpte_tokens_total") >= value("webpte_steps_total") > 0


def test_requests_have_ids(raw):
    assert raw.get("/v1/models", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for strange in ("a b", "x" * 200):
        assert raw.get("/v1/models", headers={"X-Request-Id": strange}).headers["x-request-id"].startswith("req_")


def test_pages_of_listed_origins_may_ask(server):
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for origin, allowed in (("https://page.example", True), ("https://other.example", False)):
        response = httpx.options(f"{server.api}/chat/completions", headers={"Origin": origin, **asking})
        assert ("access-control-allow-origin" in response.headers) == allowed


def test_log_has_requests_but_no_prompts(server, client, raw):
    secret = "a most unusual secret 4711"
    chat(client, messages=[{"role": "user", "content": secret}], extra_headers={"X-Request-Id": "logged-1"})
    raw.post(
        "/v1/chat/completions", json={"model": "caller", "messages": [{"role": "user", "content": secret}], "x": 1}
    )
    raw.get("/v1/models")  # a line later
    (line,) = [json.loads(line) for line in server.lines if "logged-1" in line]
    assert line["status"] == 200 and line["completion_tokens"] == 8 and line["finish"] == ["length"]
    assert line["endpoint"] == "/v1/chat/completions" and line["model"] == "caller" and line["first_token_ms"] > 0
    assert not any(word in text for text in server.lines for word in (secret, *KEYS.values()))


def test_server_process_does_not_load_wgpu(server):
    maps = Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")
    assert "tokenizers" in maps and "wgpu" not in maps and "libvulkan" not in maps


@pytest.mark.slow
def test_executorchs_conformance_tests_pass_unmodified(tmp_path):
    """The file of its wheel, as it stands there. It sends no key, and asks for a temperature of 0 only sometimes."""
    import executorch

    (root,) = executorch.__path__
    file = Path(root) / "examples" / "llm_server" / "conformance" / "test_openai_contract.py"
    with Running(write_caller(tmp_path)) as running:
        environment = os.environ | {"OPENAI_BASE_URL": running.api, "OPENAI_MODEL": "caller"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(file),
        ]
        process = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=240)
    assert process.returncode == 0 and "7 passed" in process.stdout, process.stdout + process.stderr
