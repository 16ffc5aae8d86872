"""Hostile clients of a server, a kind each: `python -m tests.serving.hostile ADDRESS SECONDS CONNECTIONS KIND...`.

They run in a process of their own, all from one address that is not the one of normal clients, and print as JSON how
often each kind got which status. See `python -m tests.serving abuse`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

SOURCE = "127.0.0.2"  # another client than 127.0.0.1
MODEL = "m"
CHAT = "/v1/chat/completions"
CLOSED, TIMED_OUT = 0, -1  # in place of a status: closed without a response; neither closed nor answered
PATIENCE = 30.0  # seconds
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
SPARE_FILES = 500
FLOOD_BYTES = 1 << 20
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = GET + b"Transfer-Encoding: chunked\r\n\r\n"
# A response that follows the bias repeats one letter, so that all of it may begin a stop string and is held back. The
# strings have as many characters as a request may have.
LETTER = "z"
STOP_STRINGS = [chr(97 + number) + "x" * 255 for number in range(15)] + [LETTER * 255 + "!"]
NEVER = {"type": "function", "function": {"name": "never", "parameters": {"type": "object", "properties": {}}}}
BOMB = {"allOf": [{"type": "string", "pattern": f".*{chr(97 + number)}.*"} for number in range(20)]}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema, {"type": "array", "items": schema}]}
    return schema


SCHEMAS: tuple[Any, ...] = (BOMB, nested(8), {"enum": [f"{number:040}" for number in range(1200)]})


def chat_body(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 8, **more}


def head(
    path: str = CHAT, length: int | None = None, *lines: str, host: str = "localhost", close: bool = True
) -> bytes:
    """Return the headers of a POST request."""
    results = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *lines]
    results += [f"Content-Length: {length}"] if length is not None else []
    results += ["Connection: close"] if close else []
    return "\r\n".join([*results, "", ""]).encode()


def post(body: Any, path: str = CHAT, *lines: str, host: str = "localhost", close: bool = True) -> bytes:
    """Return a whole request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(path, len(data), *lines, host=host, close=close) + data


@dataclass
class Results:
    """Responses to the clients of one kind."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)  # responses of 500 and above without a reason

    def add(self, data: bytes) -> None:
        """Count the statuses in what was read from a connection."""
        results = [int(status) for status in STATUS.findall(data)]
        self.statuses.update(results or [CLOSED])
        if any(status >= 500 for status in results) and b'"message": "' not in data:
            self.unexplained.append(data[-300:].decode("latin-1"))


class Hostile:
    """A hostile client. Each method is a kind of client: one act, repeated until the time is over."""

    def __init__(self, host: str, port: int, connections: int) -> None:
        self.results = Results()
        self._host, self._port, self._connections = host, port, connections
        self._letter: str | None = None  # the token of LETTER

    async def repeat(self, kind: Kind, until: float) -> None:
        act: Callable[[], Awaitable[None]] = getattr(self, kind.name)
        while time.monotonic() < until:
            self.results.sent += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the server may close at any moment
                await act()
            await asyncio.sleep(kind.pause)

    @contextlib.asynccontextmanager
    async def _connected(self) -> Any:
        reader, writer = await asyncio.open_connection(self._host, self._port, local_addr=(SOURCE, 0))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _exchange(self, data: bytes) -> None:
        """Send a request, and read until the server closes."""
        async with self._connected() as (reader, writer):
            writer.write(data)
            await self._read_all(reader)

    async def _read_all(self, reader: asyncio.StreamReader) -> None:
        data = b""
        try:
            async with asyncio.timeout(PATIENCE):
                while part := await reader.read(1 << 16):
                    data = (data + part)[:1_000_000]
        except TimeoutError:
            if not data:
                self.results.statuses[TIMED_OUT] += 1
                return
        except ConnectionError:
            pass
        self.results.add(data)

    async def _dribble(self, first: bytes, rest: bytes) -> None:
        """Send the rest byte by byte, one a second."""
        async with self._connected() as (reader, writer):
            writer.write(first)
            reading = asyncio.ensure_future(self._read_all(reader))
            for byte in rest:
                if reading.done():
                    break
                writer.write(bytes([byte]))
                await asyncio.wait([reading], timeout=1)
            await reading

    async def slow_headers(self) -> None:
        await self._dribble(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n", b"X-Slow: " + b"x" * 20)

    async def slow_body(self) -> None:
        await self._dribble(head(length=1000) + b'{"model": ', b" " * 40)

    async def huge_prompt(self) -> None:
        for size in (3_900_000, 1_000_000):  # beyond `max_body_bytes`, and within
            await self._exchange(post(chat_body("a " * (size // 2))))

    async def schema_bomb(self) -> None:
        for number, schema in enumerate(SCHEMAS):
            named = {"name": "x", "schema": {"title": f"{time.time()} {number}", **schema}}  # none is compiled twice
            await self._exchange(post(chat_body(response_format={"type": "json_schema", "json_schema": named})))

    async def header_flood(self) -> None:
        await self._exchange(post(chat_body(), CHAT, *(f"X-{number}: {'a' * 50}" for number in range(5000))))

    async def half_closed(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(post(chat_body(stream=True, max_tokens=500)))
            writer.write_eof()
            await self._read_all(reader)

    async def connections(self) -> None:
        """Open as many connections as may be, and hold them for a while."""
        opened: list[socket.socket] = []
        try:
            for _ in range(self._connections):
                one = socket.socket()
                one.setblocking(False)
                opened.append(one)
                one.bind((SOURCE, 0))
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(1):
                        await asyncio.get_running_loop().sock_connect(one, (self._host, self._port))
            await asyncio.sleep(2)
        finally:
            for one in opened:
                one.close()
            self.results.statuses[CLOSED] += len(opened)

    async def never_reads(self) -> None:
        async with self._connected() as (_, writer):
            writer.transport.pause_reading()
            writer.write(post({"model": MODEL, "prompt": "a" * 900_000}, "/tokenize", close=False))
            writer.write(post(chat_body(stream=True, max_tokens=2000)))
            await asyncio.sleep(20)
        self.results.statuses[CLOSED] += 1

    async def disconnects(self) -> None:
        async with self._connected() as (reader, writer):
            writer.write(post(chat_body(stream=True, max_tokens=500)))
            async with asyncio.timeout(PATIENCE):
                self.results.add(await reader.readuntil(b"data: "))

    async def huge_names(self) -> None:
        await self._exchange(post(chat_body() | {"x" * 900_000: 1}))
        await self._exchange(post(chat_body() | {f"field{number}": 1 for number in range(50_000)}))

    async def deep_nesting(self) -> None:
        for data in (
            b"[" * 500_000,
            b'{"a":' * 150_000,
            b'{"model": "m", "messages": ' + b"[" * 900 + b"]" * 900 + b"}",
        ):
            await self._exchange(post(data))

    async def huge_numbers(self) -> None:
        for name in ("temperature", "max_tokens", "seed", "top_p", "n", "logit_bias"):
            value: Any = 10**400
            await self._exchange(post(chat_body() | {name: {"1": value} if name == "logit_bias" else value}))

    async def forged_host(self) -> None:
        for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "x" * 50_000):
            await self._exchange(post(chat_body(), host=host))

    async def pipelined(self) -> None:
        await self._exchange(post(chat_body(max_tokens=1), close=False) * 50 + post(chat_body(max_tokens=1)))

    async def two_lengths(self) -> None:
        lines = ("Transfer-Encoding: chunked", "Content-Length: 5")
        await self._exchange(
            head(CHAT, None, *lines, close=False) + b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        )

    async def invalid_utf8(self) -> None:
        for data in (
            b"\xff\xfe" * 1000,
            b'{"model": "m", "messages": [{"role": "user", "content": "\xc3\x28\xed\xa0\x80"}]}',
        ):
            await self._exchange(post(data))

    async def flood(self) -> None:
        """Send many small requests over one connection, and one that is computed."""
        async with self._connected() as (reader, writer):
            for number in range(100):
                last = number == 99
                body = chat_body(max_tokens=64) if last else {"model": MODEL, "prompt": "x"}
                writer.write(post(body, CHAT if last else "/tokenize", close=last))
                if not last:
                    async with asyncio.timeout(PATIENCE):
                        self.results.add(await reader.readuntil(b"}"))
            await self._read_all(reader)

    async def stop_strings(self) -> None:
        await self._exchange(post(await self._held_back()))

    async def stop_tools(self) -> None:
        """With tools, the server searches for stop strings itself."""
        await self._exchange(post(await self._held_back() | {"tools": [NEVER]}))

    async def _held_back(self) -> dict[str, Any]:
        """Return a request whose response continues repeating the beginning of a stop string."""
        bias = {await self._token(): 100}
        return chat_body(stop=STOP_STRINGS, logit_bias=bias, temperature=0, max_tokens=700, stream=True)

    async def _token(self) -> str:
        """Return the token of LETTER."""
        if self._letter is None:
            async with self._connected() as (reader, writer):
                writer.write(post({"model": MODEL, "prompt": LETTER}, "/tokenize"))
                async with asyncio.timeout(PATIENCE):
                    data = await reader.read()
            match = re.search(rb'"tokens": \[(\d+)\]', data)
            if match is None:
                raise ConnectionError("no tokens: the server has too many requests")
            self._letter = match[1].decode()
        return self._letter

    # -- shapes of HTTP, of which most need no key --------------------------------------------------------------------

    async def _flood(self, first: bytes, block: bytes, nbytes: int = FLOOD_BYTES) -> None:
        """Send a connection's bytes until it is closed. Its responses count."""
        async with self._connected() as (reader, writer):
            writer.write(first)
            reading = asyncio.ensure_future(self._read_all(reader))
            for _ in range(nbytes // len(block)):
                if reading.done():
                    break
                writer.write(block)
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
            await asyncio.wait([reading], timeout=1)
            reading.cancel()

    async def byte_chunks(self) -> None:
        await self._flood(CHUNKED, b"1\r\nx\r\n" * 4000)

    async def chunk_extensions(self) -> None:
        await self._flood(CHUNKED, (b"1;" + b"a=b;" * 200 + b"\r\nx\r\n") * 20)

    async def endless_extension(self) -> None:
        await self._flood(CHUNKED + b"1;", b"a" * 16_000)

    async def trailers(self) -> None:
        await self._flood(CHUNKED + b"0\r\n", b"a:b\r\n" * 3000)

    async def header_count(self) -> None:
        await self._flood(GET, b"a:b\r\n" * 3000)

    async def empty_lines(self) -> None:
        await self._flood(b"", b"\r\n" * 8000)

    async def pipelined_health(self) -> None:
        await self._flood(b"", (GET + b"\r\n") * 300)

    async def upgrades(self) -> None:
        await self._flood(b"", (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n") * 200)

    async def http_1_0(self) -> None:
        await self._exchange(b"GET /health HTTP/1.0\r\n\r\n" + b"GET / HTTP/1.0\r\n\r\n" * 200)

    async def body_after_response(self) -> None:
        await self._flood(GET + b"Content-Length: 999999999\r\n\r\n", b"x" * 65_536, 16 * FLOOD_BYTES)

    async def dribbled_bytes(self) -> None:
        """Send a request in segments of one byte, as fast as they are taken."""
        async with self._connected() as (reader, writer):
            writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in post(chat_body(max_tokens=1)):
                if writer.transport.is_closing():
                    break
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            await self._read_all(reader)

    # -- bytes and media -----------------------------------------------------------------------------------------------

    async def held_bodies(self) -> None:
        """Send a large body but for its last byte, and hold it."""
        async with self._connected() as (reader, writer):
            writer.write(head(length=1_000_000) + b" " * 999_999)
            await asyncio.sleep(5)
            writer.write(b" ")
            await self._read_all(reader)

    async def uploads_for_no_model(self) -> None:
        """Upload audio to a server without a speech model."""
        size = 25_000_000
        lines = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n"
        kind = "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        await self._flood((lines + kind).encode(), b"x" * 65_536, size - 1)

    async def small_forms(self) -> None:
        part = b'--b\r\nContent-Disposition: form-data; name="model"\r\nX: ' + b"y" * 4000 + b"\r\n\r\nm\r\n"
        body = part * 200 + b"--b--\r\n"
        for _ in range(10):
            data = post(body, "/v1/audio/transcriptions")
            await self._exchange(data.replace(b"application/json", b"multipart/form-data; boundary=b", 1))

    async def slow_reader(self) -> None:
        """Read long responses by a few bytes a second."""
        async with self._connected() as (reader, writer):
            writer.transport.set_write_buffer_limits(0)
            writer.write((GET.replace(b"/health", b"/openapi.json") + b"\r\n") * 50)
            for _ in range(20):
                await reader.read(64)
                await asyncio.sleep(1)
        self.results.statuses[CLOSED] += 1

    async def keep_alive_0(self) -> None:
        await self._exchange(post({"model": MODEL, "keep_alive": 0}, "/api/generate"))

    async def prefix_guesses(self) -> None:
        """Ask for the prompts of others, to see what is cached."""
        for number in range(10):
            await self._exchange(post(chat_body(f"Question {number}.", max_tokens=1)))

    async def new_regexes(self) -> None:
        for number in range(4):
            schema = {"type": "string", "pattern": f"({time.time()}{number}|[a-z]{{1,200}}){{1,20}}"}
            named = {"name": "x", "schema": schema}
            await self._exchange(post(chat_body(response_format={"type": "json_schema", "json_schema": named})))

    async def plain(self) -> None:
        """Ask for a long answer as a normal client does, for a measurement to compare with."""
        await self._exchange(post(chat_body(temperature=0, max_tokens=700, stream=True)))

    async def tokenize(self) -> None:
        for text in ("x" * 900_000, " a" * 450_000, "<|im_end|>" * 90_000, "é" * 120_000):
            await self._exchange(post({"model": MODEL, "prompt": text}, "/tokenize"))


@dataclass(frozen=True)
class Kind:
    """The number of clients of a kind, and their pause between two acts."""

    name: str
    clients: int
    pause: float = 0.2


KINDS = (
    Kind("slow_headers", 50),
    Kind("slow_body", 20),  # with the others fewer than one client may have in progress, so that all kinds get through
    Kind("huge_prompt", 2),
    Kind("schema_bomb", 4),
    Kind("header_flood", 2),
    Kind("half_closed", 4),
    Kind("connections", 1, 5.0),
    Kind("never_reads", 8),
    Kind("disconnects", 8),
    Kind("huge_names", 2),
    Kind("deep_nesting", 2),
    Kind("huge_numbers", 2),
    Kind("forged_host", 2),
    Kind("pipelined", 4),
    Kind("two_lengths", 2),
    Kind("invalid_utf8", 2),
    Kind("flood", 8),
    Kind("tokenize", 4),
    Kind("stop_strings", 3),
    Kind("stop_tools", 3),
    Kind("byte_chunks", 8),
    Kind("chunk_extensions", 2),
    Kind("endless_extension", 2),
    Kind("trailers", 2),
    Kind("header_count", 2),
    Kind("empty_lines", 2),
    Kind("pipelined_health", 2),
    Kind("upgrades", 2),
    Kind("http_1_0", 2),
    Kind("body_after_response", 2),
    Kind("dribbled_bytes", 4),
    Kind("held_bodies", 8),
    Kind("uploads_for_no_model", 4),
    Kind("small_forms", 2),
    Kind("slow_reader", 4),
    Kind("keep_alive_0", 2),
    Kind("prefix_guesses", 2),
    Kind("new_regexes", 3),
)


PLAIN = Kind("plain", 8, 0.0)  # not hostile


async def attack(address: str, seconds: float, connections: int, names: Sequence[str]) -> dict[str, Results]:
    """Return what every kind got within some seconds."""
    host, _, port = address.removeprefix("http://").partition(":")
    chosen = [kind for kind in (*KINDS, PLAIN) if kind.name in names]
    clients = {kind: Hostile(host, int(port), connections) for kind in chosen}
    until = time.monotonic() + seconds
    tasks = [
        asyncio.ensure_future(client.repeat(kind, until))
        for kind, client in clients.items()
        for _ in range(kind.clients)
    ]
    done, pending = await asyncio.wait(tasks, timeout=seconds + 1)
    for task in pending:  # acts that are slow on purpose
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
    return {kind.name: client.results for kind, client in clients.items()}


def raised_file_limit(connections: int) -> int:
    """Return how many connections this process may open, at most `connections`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    expected = connections + SPARE_FILES
    allowed = expected if hard == resource.RLIM_INFINITY else min(expected, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed - SPARE_FILES


def lines_of(results: dict[str, Results]) -> Iterator[str]:
    for kind, one in results.items():
        yield json.dumps({"kind": kind, "sent": one.sent, "statuses": one.statuses, "unexplained": one.unexplained[:3]})


def main() -> int:
    address, seconds, connections = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    os.nice(10)  # they share the cores with the server, which real ones would not
    for line in lines_of(asyncio.run(attack(address, seconds, raised_file_limit(connections), sys.argv[4:]))):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
