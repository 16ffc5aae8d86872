"""A server ends in order on the first signal, at once on the second, and with code 3 if its worker exits repeatedly;
nothing of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import httpx
import openai
import pytest

from tests.serving.asking import HELLO, PERSON, in_schema
from tests.support.harness.serving import Running, alive, children_of, until
from tests.support.models.caller_files import write_caller
from webpte.serve.schema_process import NUM_PROCESSES

pytestmark = pytest.mark.gpu
STREAMS = 8
MANY = 8
ENDLESS: dict[str, Any] = {"model": "caller", "messages": HELLO, "max_tokens": 1900, "temperature": 1, "stream": True}


@pytest.fixture
def program(tmp_path):
    return write_caller(tmp_path)


async def read(client: openai.AsyncOpenAI, begun: asyncio.Semaphore, seed: int) -> list[Any]:
    """Return all chunks of a stream that continues for long; `begun` is released by its first text."""
    chunks, released = [], False
    async for chunk in await client.chat.completions.create(**ENDLESS, seed=seed):
        chunks.append(chunk)
        if not released and chunk.choices and chunk.choices[0].delta.content:
            released = True
            begun.release()
    return chunks


def test_sigterm_lets_streams_end_with_a_last_event(program):
    """Those that are not done within the grace period get one, too."""

    async def whole(running):
        async with openai.AsyncOpenAI(base_url=running.api, api_key="x", max_retries=0, timeout=240) as client:
            begun = asyncio.Semaphore(0)
            reading = [asyncio.ensure_future(read(client, begun, seed)) for seed in range(STREAMS)]
            for _ in range(STREAMS):
                await begun.acquire()
            running.signal(signal.SIGTERM)
            return await asyncio.gather(*reading)

    with Running(program, "--shutdown-timeout", 2, "--max-output-tokens", 1900) as running:
        (worker,) = children_of(running.pid)
        streams = asyncio.run(whole(running))
        assert running.wait() == 0
    ends = [chunks[-1].choices[0] for chunks in streams]
    assert len(ends) == STREAMS and {end.finish_reason for end in ends} <= {"stop", "length"}
    assert not alive(worker)


def test_server_second_sigint_ends_at_once(program):
    with Running(program, "--shutdown-timeout", 300, "--max-output-tokens", 1900) as running:
        (worker,) = children_of(running.pid)
        first = threading.Event()

        def stream():
            url = f"{running.api}/chat/completions"
            asked = ENDLESS | {"n": MANY, "seed": 0}
            with pytest.raises(httpx.HTTPError), httpx.stream("POST", url, json=asked, timeout=240) as response:
                for _ in response.iter_lines():
                    first.set()

        readers = [threading.Thread(target=stream, daemon=True) for _ in range(MANY)]  # no device is done with all soon
        for reader in readers:
            reader.start()
        assert first.wait(240)
        running.signal(signal.SIGINT)
        until(lambda: ending(running), "sign that the server ends")
        running.signal(signal.SIGINT)
        assert running.wait(120) == 130  # and not after the 300 seconds
        for reader in readers:
            reader.join(60)
    until(lambda: not alive(worker), "end of the worker")


def test_idle_server_after_ctrl_c_ends_at_once_without_a_traceback(program):
    """Also of the processes that compile schemas: a terminal sends the signal to all processes of the group."""
    with Running(program, "--schema-timeout", 60, "--shutdown-timeout", 300) as running:
        body = {"model": "caller", "messages": HELLO, "max_tokens": 2, "response_format": in_schema(PERSON)}
        response = httpx.post(f"{running.api}/chat/completions", json=body, timeout=240)
        assert response.status_code == 200, response.text
        children = children_of(running.pid, helpers=True)
        running.interrupt()
        assert running.wait(120) == 0  # and not after the 300 seconds
    assert len(children) == 1 + NUM_PROCESSES and not any(map(alive, children))
    assert not [line for line in running.lines if "Traceback" in line or "KeyboardInterrupt" in line]


def test_server_whose_workers_exit_until_the_timeout_exits_with_code_3(program):
    """Meanwhile `/health` reports the restarts, and then the failure."""
    bodies: list[dict[str, Any]] = []
    with Running(program, "--restart-timeout", 3, "--max-restart-pause", 0.2) as running:
        with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=running.url, timeout=60) as client:
            while not bodies or bodies[-1]["status"] != "failed":
                for worker in children_of(running.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                bodies.append(client.get("/health").json())
        assert running.wait() == 3
    restarts = [body["restart"] for body in bodies if body["status"] == "restarting"]
    assert max(restart["attempts"] for restart in restarts) >= 1
    assert all(0 <= restart["next_attempt_seconds"] <= 0.2 for restart in restarts)
    assert {restart["last_error"] for restart in restarts} == {"exited by SIGKILL"}
    assert bodies[-1]["status"] == "failed"
    assert sum(line.startswith("WorkerUnavailable: ") for line in running.lines) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_server_whose_log_cannot_be_written_starts_and_serves(program):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "webpte", "serve", str(program), "--port", str(port)]
    with open("/dev/full", "w", encoding="utf-8") as full, subprocess.Popen(command, stderr=full) as child:
        try:
            until(lambda: child.poll() is not None or healthy(port), "server")
            body = {"model": "caller", "messages": HELLO, "max_tokens": 2}
            response = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=240)
            assert response.status_code == 200
        finally:
            child.terminate()
        assert child.wait(120) == 0


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def ending(running):
    try:
        return httpx.get(f"{running.url}/health", timeout=60).status_code == 503
    except httpx.TransportError:  # it takes no more connections
        return True
