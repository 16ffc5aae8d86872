"""HTTP connections: what a client sends is parsed in small parts, in turns of all clients, within bounds.

The parser calls back for each event: a header, a chunk, a part of a body. A client chooses how many events a byte
costs, so events are counted: those of one turn of the event loop, and those of one request. This happens before any key
is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .accounts import Accounts
from .clients import client_of_address
from .config import Config
from .errors import ApiError
from .responses import JsonResponse

READ_BYTES = 16 << 10  # of a connection, until they have been parsed
PARSED_BYTES = 4 << 10  # at once
TURN_EVENTS = 4096  # of all connections, in one turn of the event loop: about 4 ms
PART_EVENTS = 16  # for which parsing a part counts, whatever it has
REQUEST_EVENTS = 64  # for which a request counts: its response costs about as much as 64 chunks
MAX_HEADER_BYTES = 64 << 10  # of the lines of a request: its target, its headers, and the trailers after its body
MAX_HEADERS = 256
MAX_BODY_EVENTS = 1000  # of a request, and one more for each part of its body: a chunk has two
BYTES_PER_EVENT = 32
UNREAD_BYTES = 64 << 20  # of a request that is answered before it has arrived; they are received and dropped
UNREAD_SECONDS = 10.0
SLOWEST_READER = 1024  # bytes of a response per second


class Turns:
    """Parses what has arrived: a part of each client in turn. A turn of the event loop has a maximum, so that others
    hardly wait."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._waiting: dict[str, deque[BoundedProtocol]] = {}  # by client; the first is next
        self._scheduled = False

    def add(self, connection: BoundedProtocol) -> None:
        self._waiting.setdefault(connection.account, deque()).append(connection)
        self._schedule()

    def remove(self, connection: BoundedProtocol) -> None:
        own = self._waiting[connection.account]
        own.remove(connection)
        if not own:
            del self._waiting[connection.account]

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.run)

    def run(self) -> int:
        """Parse for one turn. Return the number of events."""
        self._scheduled = False
        events = 0
        while self._waiting and events < TURN_EVENTS:
            client = next(iter(self._waiting))
            connections = self._waiting.pop(client)
            connection = connections.popleft()
            if connections:
                self._waiting[client] = connections  # after the others
            caused = PART_EVENTS + connection.parse_part()
            self._accounts.charge(client, "events", caused)
            events += caused
        if self._waiting:
            self._schedule()
        return events


class _Transport:
    """The transport of a connection as uvicorn sees it: it closes late, and reading it has another reason to pause."""

    def __init__(self, transport: asyncio.Transport, connection: BoundedProtocol) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._transport.is_closing() or self._connection.leaving

    def close(self) -> None:
        self._connection.close_late()

    def pause_reading(self) -> None:
        self._connection.held = True

    def resume_reading(self) -> None:
        self._connection.held = False
        self._connection.continue_reading()


class BoundedProtocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Closes connections beyond a limit, those whose client is too slow with headers or with reading a response, and
    those that send more events than their bytes justify."""

    max_connections: int
    header_timeout: float
    write_timeout: float
    accounts: Accounts
    turns: Turns
    by_client: dict[str, dict[BoundedProtocol, None]]  # open connections, oldest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._socket = transport
        self.transport = _Transport(transport, self)  # type: ignore[assignment]
        self.flow = FlowControl(self.transport)
        self.held = False  # the application has enough of a body, or other requests are before the next one
        self.leaving = False  # the response is complete, and the rest of the request is dropped
        self._unparsed = b""
        self._waits = False  # for its turn
        self._receiving = False  # a request that has begun is not complete
        self._in_headers = False
        self._part_events = 0  # since the last turn of the connection
        self._events = self._line_bytes = self._num_headers = self._body_bytes = self._unread = 0  # of the request
        self._cycles: deque[RequestResponseCycle] = deque()  # without a complete response
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.account = client_of_address(self.client[0] if self.client else "")
        self._counted = True
        self.accounts.take(self.account, "connections")
        transport.set_write_buffer_limits(high=0)  # `pause_writing` is called for every byte that waits
        self.by_client.setdefault(self.account, {})[self] = None
        if len(self.connections) > self.max_connections:
            self._displaced().abort()
        self._watch_headers()

    def _displaced(self) -> asyncio.Transport:
        """Return the connection to close: the newest of the client with the most, or this one."""
        most = max(self.by_client.values(), key=len)
        displaced = self if len(most) <= len(self.by_client[self.account]) else next(reversed(most))
        displaced._forget()
        return displaced._socket

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self._waits:
            self._waits = False
            self.turns.remove(self)
        for timer in self._timers.values():
            timer.cancel()
        for cycle in self._cycles:  # uvicorn knows the last one only
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def _forget(self) -> None:
        """Stop counting the connection."""
        self.connections.discard(self)
        if self._counted:
            self._counted = False
            self.accounts.give_back(self.account, "connections")
        own = self.by_client.get(self.account, {})
        own.pop(self, None)
        if not own:
            self.by_client.pop(self.account, None)

    # -- reading -----------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> bytearray:
        self._buffer = bytearray(READ_BYTES)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.leaving:
            self._drop(nbytes)
            return
        self._unset_keepalive_if_required()
        self._unparsed = bytes(memoryview(self._buffer)[:nbytes])
        self._socket.pause_reading()
        self.continue_reading()

    def continue_reading(self) -> None:
        """Wait for the next turn if there is something to parse, or read more: also while a response is computed, so
        that the end of the connection is seen."""
        if self.leaving or self._waits:
            return
        if not self._unparsed:
            self._socket.resume_reading()
        elif not (self.held or self.pipeline or self._socket.is_closing()):
            self._waits = True
            self.turns.add(self)

    def parse_part(self) -> int:
        """Parse the next bytes. Return the number of events."""
        self._waits, self._part_events = False, 0
        part, self._unparsed = self._unparsed[:PARSED_BYTES], self._unparsed[PARSED_BYTES:]
        in_lines = self._in_headers or not self._receiving
        self._line_bytes += len(part) if in_lines else 0
        self._feed(part)
        if not in_lines and not self._part_events:  # the parser has kept it: a trailer, or an extension of a chunk
            self._line_bytes += len(part)
        self._check(len(part))
        self._watch_headers()
        self.continue_reading()
        return self._part_events

    def _feed(self, part: bytes) -> None:
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:  # the protocol stays, and what follows is the next request
            self._unparsed = part[upgrade.args[0] :] + self._unparsed
        except httptools.HttpParserError as error:
            if self._num_headers <= MAX_HEADERS:  # else `_check` says so
                reason = "" if isinstance(error, httptools.HttpParserCallbackError) else f": {error}"
                self._refuse(400, f"the request is not valid HTTP{reason}", "invalid_http")

    def _count(self, events: int = 1) -> None:
        self._events += events
        self._part_events += events

    def _check(self, nbytes: int) -> None:
        """Close the connection of a client that sends more than a request may have."""
        if self.leaving or self._socket.is_closing():
            return
        if self._line_bytes > MAX_HEADER_BYTES or self._num_headers > MAX_HEADERS:
            message = f"a request may have {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes of them"
            self._refuse(431, message, "headers_too_large")
        elif self._events > MAX_BODY_EVENTS + self._body_bytes // BYTES_PER_EVENT:
            self._refuse(400, "the body has too many chunks for its size", "too_many_chunks")
        elif self._receiving and not self._in_headers and self.cycle.response_complete:
            self._drop(nbytes)

    def _drop(self, nbytes: int) -> None:
        """Count bytes that no endpoint reads."""
        self._unread += nbytes
        if self._unread > UNREAD_BYTES:
            self._socket.abort()

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Send an error if no response has begun, and close the connection."""
        self.accounts.refused["events"] += 1
        if any(cycle.response_started for cycle in self._cycles):
            self._socket.abort()
            return
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        error = JsonResponse(ApiError(status, message, code=code).body())
        lines = [f"HTTP/1.1 {status} {'Bad Request' if status == 400 else 'Request Header Fields Too Large'}"]
        lines += ["content-type: application/json", f"content-length: {len(error.body)}", "connection: close", "", ""]
        self._socket.write("\r\n".join(lines).encode() + bytes(error.body))
        self._receiving = True  # what follows is not parsed
        self.close_late()

    def close_late(self) -> None:
        """Close the connection. If the client still sends its request, drop that for a while: a client that is reset
        would not read the response."""
        if self._socket.is_closing() or self.leaving:
            return
        if not self._receiving and not self._unparsed:
            self._socket.close()
            return
        self.leaving = True
        self._unparsed = b""
        if self._waits:
            self._waits = False
            self.turns.remove(self)
        self._stop_timer("headers")
        self._timers["unread"] = self.loop.call_later(UNREAD_SECONDS, self._socket.abort)
        with contextlib.suppress(OSError, RuntimeError):
            self._socket.write_eof()
        self._socket.resume_reading()

    # -- events of the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._receiving = self._in_headers = True
        self._events = self._line_bytes = self._num_headers = self._body_bytes = self._unread = 0
        self._count()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count()
        self._num_headers += 1
        if self._in_headers:  # else it is a trailer, which no endpoint reads
            super().on_header(name, value)
        else:
            self._line_bytes += len(name) + len(value)

    def on_headers_complete(self) -> None:
        if self._num_headers > MAX_HEADERS:
            raise ValueError("too many headers")  # which ends the parser
        self._in_headers = False
        self._count(REQUEST_EVENTS)
        super().on_headers_complete()
        while self._cycles and self._cycles[0].response_complete:
            self._cycles.popleft()
        self._cycles.append(self.cycle)

    def on_chunk_header(self) -> None:
        self._count()

    def on_body(self, body: bytes) -> None:
        self._count()
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving = False
        self._count()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.continue_reading()

    def _should_upgrade(self) -> bool:
        return False

    # -- slow clients ------------------------------------------------------------------------------------------------

    def _watch_headers(self) -> None:
        """Start the timer while a request is incomplete, and stop it when its headers have arrived."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer("headers")
        elif "headers" not in self._timers and not self.leaving:
            self._timers["headers"] = self.loop.call_later(self.header_timeout, self._socket.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading(self._socket.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer("response")

    def _watch_reading(self, unread: int) -> None:
        """Close the connection if a response is read too slowly. uvicorn would keep it, and the response."""

        def look() -> None:
            left = self._socket.get_write_buffer_size()
            if left > unread - SLOWEST_READER * self.write_timeout:
                self._socket.abort()
            else:
                self._watch_reading(left)

        self._timers["response"] = self.loop.call_later(self.write_timeout, look)

    def _stop_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def bounded_protocol(config: Config, accounts: Accounts) -> type[BoundedProtocol]:
    """Return the protocol with the limits of a configuration: uvicorn makes its instances."""
    limits = {name: getattr(config, name) for name in ("max_connections", "header_timeout", "write_timeout")}
    shared: dict[str, Any] = {"by_client": {}, "accounts": accounts, "turns": Turns(accounts)}
    return type("ConfiguredProtocol", (BoundedProtocol,), {**limits, **shared})
