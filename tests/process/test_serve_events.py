"""What a connection may cost before any key is checked: events of the HTTP parser are counted, not seconds."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import pytest
import uvicorn

from tests.support.harness.stand_in import StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve import protocol
from webpte.serve.accounts import Accounts
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.protocol import PARSED_BYTES, TURN_EVENTS, BoundedProtocol, bounded_protocol
from webpte.serve.running import Server, _run, bind
from webpte.serve.service import Service

SENT_BYTES = 1 << 20  # by each hostile connection, unless it is closed before
CONNECTIONS = 4
# The most events of PARSED_BYTES: requests, of which the shortest has 18 bytes.
PART_EVENTS = PARSED_BYTES // 18 * (protocol.REQUEST_EVENTS + 4) + protocol.PART_EVENTS
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = GET + b"Transfer-Encoding: chunked\r\n\r\n"
# kind -> what is sent first, what is then repeated, and whether the server closes the connection
KINDS: dict[str, tuple[bytes, bytes, bool]] = {
    "chunks of 1 byte": (CHUNKED, b"1\r\nx\r\n" * 2000, True),
    "chunks of 1 byte to a path that needs a key": (
        CHUNKED.replace(b"GET /health", b"POST /v1/chat/completions"), b"1\r\nx\r\n" * 2000, True,
    ),
    "chunks of 64 bytes": (CHUNKED, (b"40\r\n" + b"x" * 64 + b"\r\n") * 200, False),
    "chunks with extensions": (CHUNKED, (b"1;" + b"a=b;" * 20 + b"\r\nx\r\n") * 100, True),
    "one endless extension": (CHUNKED + b"1;", b"a" * 10_000, True),
    "trailers": (CHUNKED + b"0\r\n", b"a:b\r\n" * 2000, True),
    "one endless trailer": (CHUNKED + b"0\r\na: ", b"b" * 10_000, True),
    "headers": (GET, b"a:b\r\n" * 2000, True),
    "one endless header": (GET + b"a: ", b"b" * 10_000, True),
    "an endless target": (b"GET /", b"a" * 10_000, True),
    "empty lines": (b"", b"\r\n" * 5000, True),
    "requests": (b"", (GET + b"\r\n") * 200, False),
    "requests of HTTP/1.0": (b"", b"GET /health HTTP/1.0\r\n\r\n" * 200, True),
    "upgrades": (b"", (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n") * 100, False),
    "a long body": (GET + b"Content-Length: 999999999\r\n\r\n", b"x" * 10_000, False),
    "no HTTP": (b"\x16\x03\x01", b"\x00" * 10_000, True),
}  # fmt: skip


class Counted:
    """A server whose events are counted: those of each turn, and by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[int] = []
        self.names: set[str] = set()
        run = protocol.Turns.run

        def counted(turns: protocol.Turns) -> int:
            self.turns.append(run(turns))
            return self.turns[-1]

        monkeypatch.setattr(protocol.Turns, "run", counted)
        for name in [name for name in vars(BoundedProtocol) if name.startswith("on_")]:
            monkeypatch.setattr(BoundedProtocol, name, self._named(name, getattr(BoundedProtocol, name)))

    def _named(self, name: str, callback: Any) -> Any:
        def called(connection: BoundedProtocol, *arguments: Any) -> None:
            self.names.add(name)
            callback(connection, *arguments)

        return called

    def serve(self, tmp_path: Any, test: Any, **options: Any) -> Any:
        async def whole() -> Any:
            config = Config(port=0, **options)
            listening = bind(config)
            application = app(StandIn(tmp_path, byte_level()), config)
            self.accounts = application.state.service.accounts
            http = bounded_protocol(config, self.accounts)
            server = Server(uvicorn.Config(application, log_config=None, access_log=False, lifespan="off", http=http))
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


async def send(address: str, first: bytes, block: bytes) -> bool:
    """Send a connection's bytes. Return whether the server closed it before all were sent, or soon after."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
    dropping = asyncio.ensure_future(_drop(reader))
    try:
        writer.write(first)
        for _ in range(SENT_BYTES // len(block)):
            writer.write(block)
            await writer.drain()
            if dropping.done():
                return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(dropping), 0.3)
        return dropping.done()
    except ConnectionError:
        return True
    finally:
        dropping.cancel()
        writer.transport.abort()


async def _drop(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


@pytest.mark.parametrize("kind", KINDS)
def test_events_of_a_turn_are_bounded_and_health_is_answered(tmp_path, monkeypatch, kind):
    first, block, closes = KINDS[kind]
    counted = Counted(monkeypatch)

    async def test(address: str) -> tuple[list[bool], int]:
        attacks = [asyncio.ensure_future(send(address, first, block)) for _ in range(CONNECTIONS)]
        polls = 0
        async with httpx.AsyncClient(base_url=address, timeout=60, headers={"Connection": "close"}) as client:
            while not all(attack.done() for attack in attacks) or polls < 3:
                assert (await client.get("/health")).status_code == 200
                polls += 1
        return [await attack for attack in attacks], polls

    closed, _ = counted.serve(tmp_path, test, api_keys=("k",))
    assert max(counted.turns) <= TURN_EVENTS + PART_EVENTS
    assert closed == [closes] * CONNECTIONS
    assert counted.accounts.totals["events"] > CONNECTIONS and not counted.accounts.totals["connections"]


def test_events_of_the_parser_are_all_counted(tmp_path, monkeypatch):
    """The events are the callbacks that the parser looks for."""
    counted = Counted(monkeypatch)

    async def test(address: str) -> None:
        await send(address, b"", CHUNKED + b"1\r\nx\r\n0\r\na: b\r\n\r\n" + GET + b"Connection: close\r\n\r\n")

    counted.serve(tmp_path, test)
    expected = {"message_begin", "url", "header", "headers_complete", "body", "chunk_header", "message_complete"}
    assert counted.names >= {f"on_{name}" for name in expected}


def test_turn_of_several_clients_parses_a_part_of_each_first(monkeypatch):
    order: list[str] = []

    class Connection:
        def __init__(self, account: str, parts: int) -> None:
            self.account, self.parts = account, parts

        def parse_part(self) -> int:
            order.append(self.account)
            self.parts -= 1
            if self.parts:
                turns.add(self)  # type: ignore[arg-type]
            return 1000

    async def test() -> None:
        for account, parts in (("a", 3), ("a", 3), ("b", 2), ("c", 1)):
            turns.add(Connection(account, parts))  # type: ignore[arg-type]
        assert turns.run() >= TURN_EVENTS

    turns = protocol.Turns(Accounts(1))
    asyncio.run(test())
    assert order[:5] == ["a", "b", "c", "a", "b"]


def test_trailers_do_not_become_headers(tmp_path, monkeypatch):
    counted = Counted(monkeypatch)

    async def test(address: str) -> bytes:
        host, _, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = b"0\r\nAuthorization: Bearer k\r\nX-Request-Id: mine\r\n\r\n"
        writer.write(CHUNKED.replace(b"/health", b"/v1/models") + body)
        response = await reader.readuntil(b"}")
        writer.close()
        return response

    response = counted.serve(tmp_path, test, api_keys=("k",))
    assert response.startswith(b"HTTP/1.1 401") and b"mine" not in response


def test_client_that_leaves_during_a_pipelined_request_ends_all_of_them(tmp_path, monkeypatch):
    """uvicorn ends the last request only, and would compute the first to its end."""
    counted = Counted(monkeypatch)
    body = b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "stream": true}'
    ask = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def test(address: str) -> None:
        host, _, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(ask + GET + b"\r\n")
        await reader.readuntil(b"data: ")
        writer.transport.abort()
        while counted.accounts.totals["requests"]:
            await asyncio.sleep(0.01)

    backends: list[StandIn] = []
    stand_in = StandIn.__init__

    def waiting(self: StandIn, *arguments: Any) -> None:
        stand_in(self, *arguments)
        self.go.clear()  # the second token never comes
        backends.append(self)

    monkeypatch.setattr(StandIn, "__init__", waiting)
    counted.serve(tmp_path, test, shutdown_timeout=0)
    assert [stream.cancelled for stream in backends[0].streams] == [True]


async def upload(address: str, size: int, path: str = "/v1/chat/completions", announced: bool = True) -> bytes:
    """Send a whole body, and then read the response, as simple clients do. A reset would lose the response."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    framing = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{framing}\r\n\r\n".encode())
    for _ in range(size >> 16):
        writer.write(bytes(1 << 16) if announced else b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        await writer.drain()
    if not announced:
        writer.write(b"0\r\n\r\n")
    response = await reader.read()
    writer.close()
    return response


EARLY_REFUSALS = {401: {"api_keys": ("k",)}, 413: {}, 503: {}}


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("status", EARLY_REFUSALS)
def test_upload_that_is_refused_early_gets_its_response(tmp_path, monkeypatch, status, announced):
    """Without a key; of more than 8 times the maximum; while the models load."""
    counted = Counted(monkeypatch)
    if status == 503:
        monkeypatch.setattr(Service, "loading", property(lambda self: True, lambda self, value: None), raising=False)

    async def test(address: str) -> bytes:
        return await upload(address, 20 << 20, announced=announced)

    assert counted.serve(tmp_path, test, **EARLY_REFUSALS[status]).startswith(b"HTTP/1.1 %d" % status)
