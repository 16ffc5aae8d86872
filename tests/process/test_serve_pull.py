"""`/api/pull` as Ollama's client sees it, from a hub on loopback: what is downloaded, what is refused, and faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import ollama
import pytest
from huggingface_hub import constants

from tests.support.harness.hub_server import HubServer, patched_hub
from tests.support.harness.stand_in import StandIn
from tests.support.harness.xnn_writer import xnn_node, xnn_pte, xnn_value
from tests.support.models.tokenizers import byte_level
from webpte.progress import Progress
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.downloads import hub_source
from webpte.serve.errors import ApiError

PROGRAM = xnn_pte(
    [xnn_value((5, 7), argument=0), xnn_value((5, 7), argument=1, output=True)], [xnn_node("Abs", input=0, output=1)]
) + bytes(200_000)
TOKENIZER = b'{"model": {}}' * 10
NAME = "hf.co/maker/model"
ALLOWED = Config(max_download_bytes=1 << 20)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[HubServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "webpte"))
    with patched_hub(tmp_path / "cache", monkeypatch) as server:
        server.add("maker/model", {"model.pte": PROGRAM, "tokenizer.json": TOKENIZER, "README.md": b"#"})
        server.add("maker/checkpoint", {"config.json": b"{}", "model.safetensors": bytes(5000)})
        yield server


def with_client(tmp_path, config: Config, use: Any) -> Any:
    """Return what `use(client, app)` returns, with a client of an app."""

    async def run() -> Any:
        application = app(StandIn(tmp_path, byte_level()), config)
        async with application.router.lifespan_context(application):
            transport = httpx.ASGITransport(application, raise_app_exceptions=False)
            async with ollama.AsyncClient("http://localhost", transport=transport) as client:
                return await use(client, application)

    return asyncio.run(run())


def pull(tmp_path, name: str = NAME, config: Config = ALLOWED, stream: bool = False) -> list[Any]:
    """Return the status, or the lines of a stream."""

    async def use(client: ollama.AsyncClient, _: Any) -> list[Any]:
        if not stream:
            return [await client.pull(name)]
        return [line async for line in await client.pull(name, stream=True)]

    lines: list[Any] = with_client(tmp_path, config, use)
    return lines


@pytest.mark.parametrize("name", [NAME, "huggingface.co/maker/model", "hf:maker/model/model.pte@main"])
def test_pull_downloads_the_program_and_its_files(hub, tmp_path, name):
    (response,) = pull(tmp_path, name)
    assert response.status == "success"
    cached = {path.name for path in (tmp_path / "cache").glob("models--maker--model/snapshots/*/*")}
    assert cached == {"model.pte", "tokenizer.json"}
    fetched = len(hub.fetched())
    pull(tmp_path, name)
    assert len(hub.fetched()) == fetched  # the cache has it


def test_stream_ends_with_all_bytes_and_success(hub, tmp_path):
    lines = pull(tmp_path, stream=True)
    assert (lines[0].status, lines[-1].status) == ("pulling manifest", "success")
    last = lines[-2]
    assert (last.status, last.completed, last.total) == ("pulling program", len(PROGRAM), len(PROGRAM))
    assert all(line.completed <= line.total for line in lines[1:-1])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("llama3", 400, "hf.co/org/name"),
        ("http://127.0.0.1/model.pte", 400, "hf.co/org/name"),
        ("hf.co/org/name:Q4_K_M", 400, "hf.co/org/name"),
        ("x" * 600, 400, "at most 512"),
        ("hf.co/maker/other", 404, "maker/other"),
        ("hf.co/maker/model@v2", 404, "v2"),
        ("hf.co/maker/checkpoint", 400, "program"),
    ],
)
def test_pull_of_what_is_no_program_has_a_status(hub, tmp_path, stream, name, status, text):
    with pytest.raises(ollama.ResponseError) as caught:
        pull(tmp_path, name, stream=stream)
    assert caught.value.status_code == status and text in caught.value.error


@pytest.mark.parametrize("config", [Config(), Config(max_download_bytes=len(PROGRAM) - 1)])
def test_pull_beyond_the_option_downloads_no_program(hub, tmp_path, config):
    with pytest.raises(ollama.ResponseError) as caught:
        pull(tmp_path, config=config)
    assert caught.value.status_code == 403
    assert f"expected at most {config.max_download_bytes} bytes" in caught.value.error or not config.max_download_bytes
    assert hub.sent.get("model.pte", 0) < len(PROGRAM)


def test_gated_model_and_full_disk_are_refused_without_paths(hub, tmp_path, monkeypatch):
    hub.repositories["maker/model"].gated = True
    with pytest.raises(ollama.ResponseError) as caught:
        pull(tmp_path)
    assert caught.value.status_code == 403 and "gated" in caught.value.error
    hub.repositories["maker/model"].gated = False
    monkeypatch.setattr("webpte.checkpoints.hub_files.shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(ollama.ResponseError) as caught:
        pull(tmp_path)
    assert caught.value.status_code == 503 and str(constants.HF_HUB_CACHE) not in caught.value.error


def test_second_download_waits_its_turn_and_a_cancelled_one_ends(hub, tmp_path, monkeypatch):
    begun, go = threading.Event(), threading.Event()

    def fetch(source: str, progress: Any) -> None:
        progress(Progress("fetch program", 0, 8, "bytes"))
        begun.set()
        go.wait(60)
        progress(Progress("fetch program", 8, 8, "bytes"))

    monkeypatch.setattr("webpte.serve.downloads.fetch_program", fetch)

    async def use(client: ollama.AsyncClient, application: Any) -> None:
        first = asyncio.create_task(client.pull(NAME))
        await asyncio.to_thread(begun.wait, 60)
        with pytest.raises(ollama.ResponseError) as caught:
            await client.pull(NAME)
        assert caught.value.status_code == 429
        stopping = asyncio.create_task(application.state.service.downloads.stop())
        await asyncio.sleep(0)
        go.set()
        await stopping
        with pytest.raises(ollama.ResponseError) as caught:
            await first
        assert caught.value.status_code == 503 and "cancelled" in caught.value.error

    with_client(tmp_path, ALLOWED, use)


def test_names_of_the_hub_are_those_of_webpte():
    assert hub_source("hf.co/a/b") == hub_source("hf:a/b") == hub_source("a/b") == "hf:a/b"
    for name in ("a", "../../etc/passwd x", "https://a/b/c", "a/b\\c", ""):
        with pytest.raises(ApiError):
            hub_source(name)
