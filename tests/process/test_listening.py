"""The server on a real socket, over a backend without a model: uvicorn listens, answers, streams and stops."""

from __future__ import annotations

import asyncio

import httpx
import uvicorn

from tests.support.harness.stand_in import StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.running import Server, _run, bind

CHAT = {"model": "stand-in", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


def test_server_answers_streams_and_stops(tmp_path):
    async def whole():
        made = app(StandIn(tmp_path, byte_level()), Config())
        listening = bind(Config(port=0))
        server = Server(uvicorn.Config(made, log_config=None, access_log=False, server_header=False, lifespan="off"))
        addresses: list[str] = []
        running = asyncio.ensure_future(_run(server, made.state.service, addresses.append, listening))
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
