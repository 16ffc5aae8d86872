"""A Hugging Face hub on loopback: the requests its own library makes, with the faults that networks have."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from huggingface_hub import constants

CHUNK = 1 << 16  # bytes; connections are cut after some of these
LARGE = 4096  # bytes from which a file is kept apart, with a SHA-256
TOKEN = "hf_of_the_tests"
_INFO = re.compile(
    r"/api/models/(?P<repository>[^/]+/[^/?]+)(?:/(?P<form>revision|tree)/(?P<revision>[^?]+))?(?:\?.*)?"
)
_FILE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


@dataclass
class Repository:
    commits: dict[str, dict[str, bytes]]  # files by name, by commit
    revisions: dict[str, str]  # commit by name
    gated: bool = False


@dataclass
class HubServer:
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)  # "GET file bytes=5-", "INFO repository"
    cuts: dict[str, list[int]] = field(default_factory=dict)  # by file: after how many bytes the next transfers end
    wrong: set[str] = field(default_factory=set)  # files that arrive with another byte
    pages: dict[str, bytes] = field(default_factory=dict)  # files outside of repositories, by their path
    sent: dict[str, int] = field(default_factory=dict)  # bytes by file
    address: str = ""

    def add(self, name: str, files: dict[str, bytes], revision: str = "main") -> str:
        """Return a commit of these files that `revision` names from now on."""
        commit = hashlib.sha1(json.dumps([name, revision, sorted(map(digest, files.values()))]).encode()).hexdigest()
        repository = self.repositories.setdefault(name, Repository({}, {}))
        repository.commits[commit] = files
        repository.revisions[revision] = commit
        return commit

    def fetched(self) -> list[str]:
        """Return the files whose bytes were asked for."""
        return [line.split()[1] for line in self.requests if line.startswith("GET ")]


def digest(data: bytes) -> str:
    if len(data) >= LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


def _entry(file: str, data: bytes) -> dict[str, Any]:
    """Return an entry of the listing that the library requests to fetch a repository."""
    apart = {"lfs": {"oid": digest(data), "size": len(data), "pointerSize": 134}} if len(data) >= LARGE else {}
    return {"type": "file", "path": file, "size": len(data), "oid": digest(data[: LARGE - 1])} | apart


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        if (page := self.path.removeprefix("/")) in self.hub.pages:
            return self._send_file(page, self.hub.pages[page], "", body)
        info, file = _INFO.fullmatch(self.path), _FILE.fullmatch(self.path)
        result = info or file
        repository = self.hub.repositories.get(result["repository"]) if result else None
        if result is None or repository is None:
            return self._refuse(401, "RepoNotFound")
        revision = result["revision"] or "main"
        commit = revision if revision in repository.commits else repository.revisions.get(revision)
        if commit is None:
            return self._refuse(404, "RevisionNotFound")
        files = repository.commits[commit]
        if info and info["form"] == "tree":
            return self._send_json([_entry(file, data) for file, data in files.items()])
        if info:
            self.hub.requests.append(f"INFO {result['repository']}")
            return self._send_info(result["repository"], commit, files)
        if repository.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
        if result["file"] not in files:
            return self._refuse(404, "EntryNotFound")
        self._send_file(result["file"], files[result["file"]], commit, body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_info(self, name: str, commit: str, files: dict[str, bytes]) -> None:
        siblings: list[dict[str, Any]] = []
        for file, data in files.items():
            entry: dict[str, Any] = {"rfilename": file, "size": len(data), "blobId": digest(data[: LARGE - 1])}
            if len(data) >= LARGE:
                entry["lfs"] = {"sha256": digest(data), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        self._send_json({"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []})

    def _send_json(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _send_file(self, file: str, data: bytes, commit: str, body: bool) -> None:
        asked = self.headers.get("Range")
        first, _, last = asked.removeprefix("bytes=").partition("-") if asked else ("0", "", "")
        start, end = int(first), min(int(last) + 1, len(data)) if last else len(data)
        self.hub.requests.append(f"{'GET' if body else 'HEAD'} {file} {asked or ''}".rstrip())
        sent = bytes([data[0] ^ 1]) + data[1:] if file in self.hub.wrong else data
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{digest(data)}"')
        if len(data) >= LARGE:
            self.send_header("X-Linked-Etag", f'"{digest(data)}"')
            self.send_header("X-Linked-Size", str(len(data)))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if not body:
            return
        if self.hub.cuts.get(file):
            self.wfile.write(sent[start : start + self.hub.cuts[file].pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return
        self.hub.sent[file] = self.hub.sent.get(file, 0) + end - start
        self.wfile.write(sent[start:end])


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have closed their connection: downloads are cancelled."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def hub_server() -> Iterator[HubServer]:
    hub = HubServer()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with _Server(("127.0.0.1", 0), handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def patched_hub(cache: Path, monkeypatch: Any) -> Iterator[HubServer]:
    """Yield a hub that the library of this process uses, with an empty cache."""
    with hub_server() as server:
        point_at(server.address, monkeypatch)
        monkeypatch.setattr("webpte.checkpoints.transfers.time.sleep", lambda seconds: None)  # before it tries again
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache.with_name("no token")))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def point_at(address: str, monkeypatch: Any) -> None:
    """Set the endpoint, as HF_ENDPOINT does when the library is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
