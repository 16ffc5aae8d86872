"""A real HTTP server on loopback for static files, with the headers one asks for and the faults that networks have."""

from __future__ import annotations

import mimetypes
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

PIECE = 1 << 16
BLANK = b'<!doctype html><html lang="en"><title>blank</title><link rel="icon" href="data:,"></html>'
TYPES = {
    ".js": "text/javascript",
    ".wgsl": "text/plain",
    ".json": "application/json",
    ".bin": "application/octet-stream",
}


@dataclass(frozen=True)
class Fault:
    """failures with an answer: another status, a byte flipped, the connection cut, a pause at every piece."""

    status: int = 200
    flip: int | None = None
    cut: int | None = None
    pause: threading.Event | None = None  # the rest is sent when it is set


@dataclass(frozen=True)
class Request:
    path: str
    sent: int  # bytes of the body
    whole: bool


@dataclass
class SiteServer:
    """A server of static files that records its requests."""

    folders: dict[str, Path]  # by the first part of the path
    headers: dict[str, str] = field(default_factory=dict)
    fault: Callable[[str], Fault | None] = lambda path: None
    requests: list[Request] = field(default_factory=list)
    origin: str = ""

    def asked(self, *suffixes: str) -> list[Request]:
        """Return the requests for files that end so."""
        return [request for request in self.requests if request.path.endswith(suffixes)]

    def body(self, path: str) -> bytes | None:
        if path == "/blank.html":
            return BLANK
        first, _, rest = path.lstrip("/").partition("/")
        folder = self.folders.get(first)
        file = None if folder is None else (folder / (rest or "index.html")).resolve()
        if folder is None or file is None or not file.is_relative_to(folder.resolve()) or not file.is_file():
            return None
        return file.read_bytes()


def _handler(site: SiteServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            body, fault = site.body(path), site.fault(path) or Fault()
            if body is None or fault.status != 200:
                site.requests.append(Request(path, 0, True))
                self.send_error(404 if body is None else fault.status)
                return
            if fault.flip is not None:
                body = body[: fault.flip] + bytes([body[fault.flip] ^ 1]) + body[fault.flip + 1 :]
            self._answer(path, body, fault)

        def _answer(self, path: str, body: bytes, fault: Fault) -> None:
            self.send_response(200)
            name = f"{path}index.html" if path.endswith("/") else path
            kind = TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "text/plain"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in site.headers.items():
                self.send_header(name, value)
            self.end_headers()
            whole = fault.cut is None
            sent = 0
            try:
                sent = self._send(body[: fault.cut], fault)
            except ConnectionError:
                whole = False
            if not whole:
                self.close_connection = True
            site.requests.append(Request(path, sent, whole))

        def _send(self, body: bytes, fault: Fault) -> int:
            for begin in range(0, len(body), PIECE):
                self.wfile.write(body[begin : begin + PIECE])
                if fault.pause is not None and not fault.pause.wait(240):
                    raise ConnectionError
            return len(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # browsers go away whenever they like


@contextmanager
def serving(folders: Mapping[str, Path], headers: Mapping[str, str] | None = None) -> Iterator[SiteServer]:
    site = SiteServer(dict(folders), dict(headers or {}))
    with _Server(("127.0.0.1", 0), _handler(site)) as server:
        site.origin = f"http://localhost:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join(60)
