"""The server on a real socket, over a backend without a model: uvicorn listens, answers, streams and stops."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn

from tests.support.harness.stand_in import StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.running import Server, _run, bind, watch_signals

CHAT = {"model": "stand-in", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


@contextlib.asynccontextmanager
async def served(backend: Any, config: Config | None = None) -> AsyncIterator[str]:
    """The address of a server that has started its backend, or is about to."""
    application = app(backend, config or Config())
    listening = bind(Config(port=0))
    server = Server(uvicorn.Config(application, log_config=None, access_log=False, server_header=False, lifespan="off"))
    service = application.state.service
    running = asyncio.ensure_future(_run(server, service, lambda address: None, listening))
    slow = isinstance(backend, SlowStandIn)
    while (not server.started or (service.loading and not slow)) and not running.done():
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        assert await running == 0


class SlowStandIn(StandIn):
    """A backend that loads until `loaded` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, byte_level())
        self.loaded = asyncio.Event()
        self.state = "starting"

    async def start(self) -> None:
        await self.loaded.wait()
        self.state = "ready"


def test_server_while_models_load_answers_health_and_page_and_nothing_else(tmp_path):
    async def whole():
        backend = SlowStandIn(tmp_path)
        async with served(backend) as address, httpx.AsyncClient(base_url=address, timeout=60) as client:
            early = [await client.get("/health"), await client.get("/", headers={"Accept": "text/html"})]
            early += [await client.get("/v1/models"), await client.post("/v1/chat/completions", json=CHAT)]
            backend.loaded.set()
            while (health := await client.get("/health")).status_code != 200:
                await asyncio.sleep(0.01)
            return early, health, await client.post("/v1/chat/completions", json=CHAT)

    (health, page, models, chat), later, answer = asyncio.run(whole())
    assert (health.status_code, health.json()["status"]) == (503, "loading") and later.json()["status"] == "ready"
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    for refused in (models, chat):
        assert refused.status_code == 503 and refused.headers["retry-after"] == "2"
        assert refused.json()["error"]["code"] == "loading"
    assert answer.status_code == 200


def test_server_with_keys_shows_its_page_and_nothing_else_without_one(tmp_path):
    async def whole():
        config = Config(api_keys=("secret",))
        async with (
            served(StandIn(tmp_path, byte_level()), config) as address,
            httpx.AsyncClient(base_url=address, timeout=60) as client,
        ):
            html = await client.get("/", headers={"Accept": "text/html,*/*"})
            names = re.findall(r'(?:src|href)="\./([^"]+)"', html.text)
            files = [await client.get(f"/{name}") for name in (*names, "page.js", "server.js")]
            return html, files, await client.get("/"), await client.get("/v1/models")

    html, files, index, models = asyncio.run(whole())
    assert html.status_code == 200 and html.headers["x-frame-options"] == "DENY"
    assert len(files) > 5 and all(file.status_code == 200 for file in files)
    assert (index.status_code, models.status_code) == (401, 401)


def test_openai_client_holds_a_conversation(tmp_path):
    async def whole():
        backend = StandIn(tmp_path, byte_level())
        async with served(backend) as address:
            client = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
            messages: list[Any] = []
            for question in ("one", "two"):
                messages.append({"role": "user", "content": question})
                answer = await client.chat.completions.create(model="stand-in", messages=messages)
                messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            stream = await client.chat.completions.create(model="stand-in", messages=messages[:1], stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return messages, text, backend.streams

    messages, text, asked = asyncio.run(whole())
    assert [message["content"] for message in messages] == ["one", "hello", "two", "hello"] and text == "hello"
    assert len(asked[1].prompt) > len(asked[0].prompt)
    assert all((ask.params.temperature, ask.params.top_p, ask.params.seed) == (0.0, 1.0, 0) for ask in asked)


def test_ollama_client_holds_a_conversation(tmp_path):
    ollama = pytest.importorskip("ollama")

    async def whole():
        backend = StandIn(tmp_path, byte_level())
        async with served(backend) as address:
            client = ollama.AsyncClient(host=address)
            models = await client.list()
            messages: list[Any] = []
            for question in ("one", "two"):
                messages.append({"role": "user", "content": question})
                answer = await client.chat(model="stand-in:latest", messages=messages, options={"temperature": 0.5})
                messages.append(answer.message)
            parts = [part async for part in await client.chat(model="stand-in", messages=messages[:1], stream=True)]
            text = await client.generate(model="stand-in", prompt="hi", system="be brief")
            lines = [part async for part in await client.generate(model="stand-in", prompt="a", raw=True, stream=True)]
            with pytest.raises(ollama.ResponseError) as error:
                await client.chat(model="other", messages=messages)
            return models, messages, parts, text, lines, error.value, backend.streams

    models, messages, parts, text, lines, error, asked = asyncio.run(whole())
    assert [model.model for model in models.models] == ["stand-in"]
    assert [message.content for message in messages[1::2]] == ["hello", "hello"]
    assert "".join(part.message.content for part in parts) == "hello"
    assert parts[-1].done and parts[-1].done_reason == "stop" and parts[-1].eval_count and parts[-1].prompt_eval_count
    assert text.response == "hello" and text.done and "".join(line.response for line in lines) == "hello"
    assert (asked[0].params.temperature, asked[3].params.temperature) == (0.5, 0.0)
    assert error.status_code == 404 and "other" in error.error


def test_ollama_client_reads_what_models_are_served(tmp_path):
    ollama = pytest.importorskip("ollama")

    async def whole():
        async with served(StandIn(tmp_path, byte_level())) as address:
            client = ollama.AsyncClient(host=address)
            shown, running = await client.show("stand-in:latest"), await client.ps()
            errors = []
            for request in (client.pull("llama3"), client.delete("stand-in"), client.embed("stand-in", "a text")):
                with pytest.raises(ollama.ResponseError) as error:
                    await request
                errors.append((error.value.status_code, error.value.error))
            return shown, running, errors

    shown, running, errors = asyncio.run(whole())
    assert shown.capabilities == ["completion"] and shown.modelinfo["webpte.context_length"] == 512
    assert [(model.model, model.context_length) for model in running.models] == [("stand-in", 512)]
    assert [status for status, _ in errors] == [403, 403, 400] and "webpte serve" in errors[0][1]


def test_server_answers_streams_and_stops(tmp_path):
    async def whole():
        application = app(StandIn(tmp_path, byte_level()), Config())
        listening = bind(Config(port=0))
        server = Server(
            uvicorn.Config(application, log_config=None, access_log=False, server_header=False, lifespan="off")
        )
        addresses: list[str] = []
        running = asyncio.ensure_future(_run(server, application.state.service, addresses.append, listening))
        while not addresses and not running.done():
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient(base_url=addresses[0], timeout=60) as client:
            health, metrics = await client.get("/health"), await client.get("/metrics")
            answer = await client.post("/v1/chat/completions", json=CHAT)
            streamed = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        server.should_exit = True
        return health, metrics, answer, streamed, await running

    health, metrics, answer, streamed, status = asyncio.run(whole())
    assert health.status_code == 200 and metrics.status_code == 200 and status == 0
    assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"]
    assert "server" not in answer.headers
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_signals_event_loop_of_windows_calls_in_the_loop(monkeypatch, number):
    def missing(*arguments: Any) -> None:
        raise NotImplementedError

    async def first_signal() -> int:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "add_signal_handler", missing)
        arrived: asyncio.Queue[int] = asyncio.Queue()
        watch_signals(loop, arrived.put_nowait)
        signal.raise_signal(number)
        assert arrived.empty()  # not within the signal's handler
        return await asyncio.wait_for(arrived.get(), 30)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert asyncio.run(first_signal()) == number
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
