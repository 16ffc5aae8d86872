"""Hubs and servers that lie: sizes, listings, redirects, error pages. Files stay within what was announced."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from huggingface_hub import constants

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.hub_server import point_at
from webpte.checkpoints import transfers
from webpte.checkpoints.hub_listing import HubName, list_files
from webpte.checkpoints.remote_programs import fetch
from webpte.checkpoints.transfers import resume_download
from webpte.checkpoints.web_programs import WebProgram
from webpte.progress import Progress, ignore

SIZE = 1000  # bytes that are announced
ENDLESS = 64  # chunks of a MiB, of which the client should read the first few
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: ClassVar[Callable[[Any], None]]

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        with suppress(OSError):
            self.answer()

    def send(self, body: bytes = b"", status: int = 200, **headers: Any) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": len(body)} | headers).items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def send_endless(self, status: int = 200, **headers: Any) -> None:
        """Send 64 MiB in chunks."""
        self.send(status=status, Content_Length=None, Transfer_Encoding="chunked", **headers)
        for _ in range(ENDLESS):
            self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def serve(tmp_path, monkeypatch) -> Iterator[Callable[..., str]]:
    """Yield a function that starts a server and returns its address. Attempts do not pause."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "webpte"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("webpte.checkpoints.transfers.time.sleep", lambda seconds: None)
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[Request], None]) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Request,), {"answer": answer}))
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        point_at(address, monkeypatch)
        return address

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def bytes_on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------- more or less than announced


def chunked(request: Request) -> None:
    request.send_endless()


def with_length(request: Request) -> None:
    request.send(bytes(ENDLESS << 20))


def compressed(request: Request) -> None:
    request.send(gzip.compress(bytes(ENDLESS << 20)), Content_Encoding="gzip")


@pytest.mark.parametrize("body", [chunked, with_length, compressed])
def test_download_beyond_announced_size_ends_at_the_first_byte_too_many(serve, tmp_path, body):
    def answer(request: Request) -> None:
        body(request) if request.command == "GET" else request.send(Content_Length=SIZE)

    address = serve(answer)
    seen: list[Progress] = []
    with raises(webpte.HubError, SIZE, code="size"):
        WebProgram(f"{address}/m.pte").fetch(seen.append)
    assert max(event.done for event in seen) <= SIZE
    assert bytes_on_disk(tmp_path) <= SIZE


def test_download_that_ends_early_is_refused_with_both_sizes(serve, tmp_path):
    address = serve(lambda request: request.send(bytes(10)))
    with raises(webpte.HubError, SIZE, 10, code="size"):
        resume_download(address, tmp_path / "partial", SIZE, {}, lambda done: None)
    assert not (tmp_path / "partial").exists()


def test_file_of_a_hub_beyond_its_listing_is_refused(serve, tmp_path):
    program = {"rfilename": "m.pte", "size": SIZE, "lfs": {"sha256": hashlib.sha256(b"").hexdigest(), "size": SIZE}}

    def answer(request: Request) -> None:
        listing = request.path.startswith("/api/")
        request.send(_listing([program])) if listing else request.send_endless()

    serve(answer)
    with raises(webpte.HubError, SIZE, code="size"):
        fetch("hf:org/name/m.pte", ignore)
    assert bytes_on_disk(tmp_path) < SIZE + 1000  # with the listing


@pytest.mark.parametrize("size", ["9" * 5000, "-1", "0", "1e3", "9" * 16, None])
def test_announced_sizes_that_no_file_has_are_refused(serve, size):
    address = serve(lambda request: request.send(Content_Length=size))
    with raises(webpte.HubError):
        WebProgram(f"{address}/m.pte").fetch(ignore)


def test_attempts_are_bounded_if_every_connection_brings_one_byte(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(transfers, "MAX_ATTEMPTS", 20)
    requests: list[str] = []

    def answer(request: Request) -> None:
        requests.append(request.headers.get("Range", ""))
        request.send(b"x", 206 if requests[-1] else 200, Content_Length=SIZE)
        request.close_connection = True

    address = serve(answer)
    with pytest.raises(transfers.network_errors()):
        resume_download(address, tmp_path / "partial", SIZE, {}, lambda done: None)
    assert requests == ["", *(f"bytes={n}-" for n in range(1, 20))]


def test_pause_that_a_server_asks_for_is_not_waited(serve, tmp_path, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr("webpte.checkpoints.transfers.time.sleep", pauses.append)
    address = serve(lambda request: request.send(status=429, Retry_After=10**9))
    with raises(webpte.HubError, code="file"):
        WebProgram(f"{address}/m.pte").fetch(ignore)
    with pytest.raises(transfers.network_errors()):
        resume_download(address, tmp_path / "partial", SIZE, {}, lambda done: None)
    assert pauses == [1, 2, 4, 8]


# ---------------------------------------------------------------- redirects and error pages


@pytest.mark.parametrize("target", ["/again", "file:///etc/hostname", "http://", "//[", "http://127.0.0.1:1/m.pte"])
def test_redirects_without_end_or_to_no_server_are_refused(serve, target):
    address = serve(lambda request: request.send(status=302, Location=target))
    with raises(webpte.HubError, code="unreachable"):
        WebProgram(f"{address}/m.pte").fetch(ignore)
    with raises(webpte.HubError, code="unreachable"):
        fetch("hf:org/name", ignore)


@pytest.mark.parametrize("text", [b"[1]", b'{"errors": [1]}', b'{"errors": 1}', b"\xff", b"[" * 100_000])
def test_error_pages_are_not_read(serve, text):
    address = serve(lambda request: request.send(text, 404))
    with raises(webpte.HubError, 404):
        WebProgram(f"{address}/m.pte").fetch(ignore)
    with raises(webpte.HubError, 404):
        fetch("hf:org/name", ignore)


def test_error_page_without_end_is_not_read(serve):
    serve(lambda request: request.send_endless(500))
    with raises(webpte.HubError, 500, code="unreachable"):
        fetch("hf:org/name", ignore)


# ---------------------------------------------------------------- listings


def _listing(siblings: Any, **others: Any) -> bytes:
    return json.dumps({"sha": COMMIT, "siblings": siblings} | others).encode()


def _file(name: Any, size: Any = 10) -> dict[str, Any]:
    return {"rfilename": name, "size": size, "blobId": hashlib.sha1(str(name).encode()).hexdigest()}


LISTINGS = {
    "list": b"[]",
    "number": b"1",
    "text": b"<html>",
    "deep": b"[" * 100_000,
    "bytes": b"\xff\xfe",
    "digits": b'{"sha": ' + b"9" * 5000 + b"}",
    "no commit": json.dumps({"siblings": []}).encode(),
    "commit with a path": _listing([], sha="../../" + COMMIT),
    "files as an object": _listing({"a": 1}),
    "files as strings": _listing(["a"]),
    "parent": _listing([_file("../m.pte")]),
    "parent inside": _listing([_file("a/../../m.pte")]),
    "absolute": _listing([_file("/etc/m.pte")]),
    "size below zero": _listing([_file("m.pte", -1)]),
    "size of a string": _listing([_file("m.pte", "10")]),
    "size of a pebibyte": _listing([_file("m.pte", 1 << 51)]),
    "size of true": _listing([_file("m.pte", True)]),
    "hash with a path": _listing([{"rfilename": "m.pte", "size": 10, "blobId": "../../m"}]),
    "large file without a hash": _listing([{"rfilename": "m.pte", "size": 10, "lfs": {"sha256": [1]}}]),
    "twice": _listing([_file("m.pte"), _file("m.pte", 11)]),
}


@pytest.mark.parametrize("kind", LISTINGS)
def test_listing_that_is_none_is_refused(serve, tmp_path, kind):
    serve(lambda request: request.send(LISTINGS[kind]))
    with raises(webpte.HubError):
        fetch("hf:org/name/m.pte", ignore)
    assert bytes_on_disk(tmp_path) == 0


def test_listing_without_end_is_refused(serve, monkeypatch):
    monkeypatch.setattr("webpte.checkpoints.hub_listing.MAX_LISTING_BYTES", 1 << 20)
    serve(lambda request: request.send_endless())
    with raises(webpte.HubError, 1 << 20, code="size"):
        list_files(HubName.parse("hf:org/name"))


def test_listing_of_many_files_is_read(serve):
    """A repository of a dataset has tens of thousands."""
    text = _listing([_file(f"folder/{n}.txt") for n in range(30_000)])
    serve(lambda request: request.send(text))
    assert len(list_files(HubName.parse("hf:org/name")).files) == 30_000
