"""Clients that hold connections open: they are closed, and others are served."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from tests.support.harness.children import run_python
from tests.support.harness.errors import raises
from tests.support.harness.stand_in import StandIn
from tests.support.models.tokenizers import byte_level
from webpte.errors import InputError
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.protocol import bounded_protocol
from webpte.serve.running import Server, _run, bind


def served(test, tmp_path, **options):
    """Run `test(host, port)` against a server with these options."""

    async def whole():
        config = Config(**options | {"port": 0})
        listening = bind(config)
        application = app(StandIn(tmp_path, byte_level()), config)
        protocol = bounded_protocol(config, application.state.service.accounts)
        server = Server(uvicorn.Config(application, log_config=None, lifespan="off", http=protocol))
        addresses: list[str] = []
        running = asyncio.ensure_future(_run(server, application.state.service, addresses.append, listening))
        while not addresses and not running.done():
            await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(100):
                return await test(addresses[0])
        finally:
            server.should_exit = True
            await running
            listening.close()

    return asyncio.run(whole())


class Connection:
    """A client that sends bytes and reads until the server closes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, address: str, data: bytes = b"", source: str = "127.0.0.1") -> Connection:
        host, _, port = address.removeprefix("http://").partition(":")
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        self.writer.write(data)
        return self

    async def until_closed(self) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(4096):
                data += part
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        return data


def test_half_sent_headers_are_closed_and_others_are_served(tmp_path):
    async def test(address):
        slow = [
            await Connection.open(address, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
            for _ in range(20)
        ]
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            health = await client.get("/health")
        return health.status_code, [await each.until_closed() for each in slow]

    assert served(test, tmp_path, header_timeout=0.5) == (200, [b""] * 20)


def test_half_sent_second_request_is_closed(tmp_path):
    async def test(address):
        client = await Connection.open(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = await client.reader.readuntil(b"}")
        client.writer.write(b"GET /health HTTP/1.1\r\n")
        return first, await client.until_closed()

    first, rest = served(test, tmp_path, header_timeout=0.5)
    assert first.startswith(b"HTTP/1.1 200") and rest == b""


def test_slow_body_is_not_cut_by_the_header_timeout(tmp_path):
    async def test(address):
        body = b'{"model": "stand-in", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}'
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        client = await Connection.open(address, head.encode() + body[:10])
        await asyncio.sleep(1)
        client.writer.write(body[10:])
        return await client.until_closed()

    assert served(test, tmp_path, header_timeout=0.3).startswith(b"HTTP/1.1 200")


def test_connections_beyond_the_limit_are_closed(tmp_path):
    async def test(address):
        kept = [await Connection.open(address) for _ in range(5)]
        await asyncio.sleep(0.1)
        refused = await Connection.open(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        result = await refused.until_closed()
        for each in kept:
            each.writer.close()
            await each.writer.wait_closed()
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            return result, (await client.get("/health")).status_code

    assert served(test, tmp_path, max_connections=5, header_timeout=60) == (b"", 200)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the files of the process")
def test_server_without_files_pauses_and_answers_when_it_has_some(tmp_path):
    """`accept` fails for each connection that waits. asyncio reports it once a second, whatever their number."""

    async def test(address):
        loop = asyncio.get_running_loop()
        failures: list[Any] = []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        host, _, port = address.removeprefix("http://").partition(":")
        clients = [socket.socket() for _ in range(64)]
        with no_files():
            started, cpu = time.monotonic(), cpu_seconds()
            for waiting in clients:
                waiting.setblocking(False)
                await loop.sock_connect(waiting, (host, int(port)))  # the system keeps it until it is accepted
            await asyncio.sleep(3.5)
            seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
        for waiting in clients:
            waiting.close()
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            return failures, seconds, cpu, (await client.get("/health")).status_code

    failures, seconds, cpu, status = served(test, tmp_path)
    assert {failure["exception"].errno for failure in failures} == {errno.EMFILE}
    assert len(failures) <= seconds + 1 and cpu < seconds / 2 and status == 200


@contextlib.contextmanager
def no_files() -> Iterator[None]:
    """Let this process open no more files."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    opened: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                opened.append(os.dup(0))  # in the gaps below the limit
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in opened:
            os.close(file)


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of POSIX")
def test_connections_are_limited_to_the_files_that_the_system_allows():
    code = """if True:
        import resource
        from webpte.serve.running import raise_file_limit
        for files in (4096, 1280, 1000, 80, 12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files // 2, files))
            print(raise_file_limit(1024))
    """
    assert list(map(int, run_python(code).split())) == [1024, 1024, 744, 40, 6]


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_client_with_most_connections_loses_one_to_another_client(tmp_path):
    async def test(address):
        many = [await Connection.open(address) for _ in range(5)]
        await asyncio.sleep(0.1)
        other = await (await Connection.open(address, HEALTH, source="127.0.0.2")).until_closed()
        displaced = await many[-1].until_closed()
        for each in many[:-1]:
            each.writer.write(HEALTH)
        return other[:12], displaced, {(await each.until_closed())[:12] for each in many[:-1]}

    response = served(test, tmp_path, max_connections=5, header_timeout=60)
    assert response == (b"HTTP/1.1 200", b"", {b"HTTP/1.1 200"})


def test_client_that_never_reads_is_closed(tmp_path):
    """The system takes some megabytes of a response; the rest would wait in the server."""

    async def test(address):
        client = await Connection.open(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000)
        reading = client.writer.transport
        assert isinstance(reading, asyncio.Transport)
        reading.pause_reading()
        while not client.writer.transport.is_closing():  # as it is when it cannot write
            client.writer.write(b"x")
            await asyncio.sleep(0.05)
        client.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await client.writer.wait_closed()

    served(test, tmp_path, write_timeout=0.3)


def test_request_with_two_lengths_is_refused_and_its_connection_closed(tmp_path):
    """A proxy in front may go by the other one, and then the rest of the body is a request to it."""

    async def test(address):
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        lengths = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        client = await Connection.open(address, head + lengths + b"0\r\n\r\n" + HEALTH)
        return await client.until_closed()

    response = served(test, tmp_path)
    assert response.startswith(b"HTTP/1.1 400") and response.count(b"HTTP/1.1") == 1 and b"Content-Length" in response


def test_address_in_use_is_an_error_before_loading():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with raises(InputError, f"127.0.0.1:{port}", code="address_unavailable"):
            bind(Config(port=port))
    bind(Config(port=0)).close()
