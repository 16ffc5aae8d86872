"""Programs by the address of a .pte file: downloaded into webpte's cache, resumable, checked against their hash."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..container import MappedFile
from ..errors import Error, HubError, InputError
from ..folders import cache_folder
from ..partial_files import atomic_file
from ..progress import OnProgress, Progress
from ..sources import RemoteProgram
from .ranged import RangedFile
from .transfers import MAX_BYTES, UNREACHABLE_HINT, network_errors, open_response, resume_download

RECORD = "source.json"  # beside a download: its address, size and hash
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[\w.-]{1,128}\.pte")
_HUB_PATH = re.compile(r"/(?P<repository>[\w.-]+/[\w.-]+)/(?:resolve|blob)/(?P<revision>[^/]+)/(?P<file>.+\.pte)")
_SIZE = re.compile(r"[0-9]{1,16}")


def downloads_folder() -> Path:
    """Return the folder of programs that were downloaded by their address."""
    return cache_folder() / "downloads"


def hub_name_of(name: str) -> str:
    """Return `hf:org/name/model.pte@revision` for the address of a file on the hub; other names as they are."""
    from huggingface_hub import constants

    hosts = ("https://huggingface.co", "https://hf.co", constants.ENDPOINT)
    host = next((host for host in hosts if name.startswith(f"{host}/")), None)
    match = _HUB_PATH.fullmatch(unquote(urlsplit(name.removeprefix(host)).path)) if host else None
    return f"hf:{match['repository']}/{match['file']}@{match['revision']}" if match else name


class WebProgram:
    """A .pte file on a server. `#sha256=HEX` after the address states its hash."""

    def __init__(self, address: str) -> None:
        self.address, _, fragment = address.partition("#")
        self._sha256 = fragment.removeprefix("sha256=") if fragment else None
        self.file = unquote(urlsplit(self.address).path).rpartition("/")[2]
        if not _FILE.fullmatch(self.file) or (self._sha256 is not None and not _SHA256.fullmatch(self._sha256)):
            raise InputError(
                argument="source",
                expected="the https: address of a .pte file, which may end with #sha256= and 64 hexadecimal digits",
                got=repr(address),
                code="invalid_address",
                hint="Name a model of the Hugging Face hub as hf:org/name.",
            )
        self.folder = downloads_folder() / hashlib.sha256(self.address.encode()).hexdigest()[:16]

    def fetch(self, progress: OnProgress) -> RemoteProgram:
        """Download the program, unless the cache has it."""
        path, known = self.folder / self.file, self._known()
        try:
            with self._errors():
                stamp = self._stamp()
        except HubError as error:
            if error.reason != "unreachable" or not path.exists():
                raise
            stamp = known
        if not path.exists() or any(known.get(key) != value for key, value in stamp.items()):
            with self._errors():
                self._download(path, stamp, progress)
        elif _digest(path) != known.get("sha256"):
            path.unlink()
            raise self._wrong_hash("the copy in the cache", known.get("sha256"))
        if self._sha256 is not None and self._known().get("sha256") != self._sha256:
            path.unlink()
            raise self._wrong_hash("the download", self._sha256)
        return RemoteProgram(path, self.address, "")

    def open(self) -> MappedFile:
        """Return the file, whose views download their ranges."""
        with self._errors():
            size = self._stamp()["size"]
        return RangedFile(self.address, self.address, size, {}, self._errors).open()

    def _stamp(self) -> dict[str, Any]:
        """Return the size and the tag that the server has for the file."""
        with open_response(self.address, {}, "HEAD") as response:
            size, tag = response.headers.get("Content-Length", ""), response.headers.get("ETag", "")
        if not _SIZE.fullmatch(size) or not 0 < int(size) <= MAX_BYTES:
            raise HubError(
                reason="size",
                argument=self.address,
                expected="the size of the file from the server",
                got=f"{size!r:.100}",
            )
        return {"size": int(size), "tag": tag}

    def _download(self, path: Path, stamp: dict[str, Any], progress: OnProgress) -> None:
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        self.folder.mkdir(parents=True, exist_ok=True)
        tag = hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:16]  # a changed file is not appended to
        partial, total = self.folder / f"{tag}.partial", stamp["size"]
        with WeakFileLock(self.folder / "lock"):
            for other in self.folder.glob("*.partial"):
                if other != partial:
                    other.unlink()
            progress(Progress("fetch program", 0, total, "bytes"))
            resume_download(
                self.address, partial, total, {}, lambda done: progress(Progress("fetch program", done, total, "bytes"))
            )
            record = {"address": self.address, "file": self.file, **stamp, "sha256": _digest(partial)}
            if self._sha256 not in (None, record["sha256"]):
                partial.unlink()
                raise self._wrong_hash("the download", self._sha256)
            os.replace(partial, path)
            with atomic_file(self.folder / RECORD) as temporary:
                Path(temporary).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    def _known(self) -> dict[str, Any]:
        try:
            record = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def _wrong_hash(self, what: str, sha256: object) -> HubError:
        return HubError(
            f"{self.address}: {what} does not have the hash {sha256}, and was removed", "hash", hint="Try again."
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the network and of the system to `HubError`."""
        try:
            yield
        except Error:
            raise
        except network_errors() as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status is not None and status < 500:
                raise HubError(f"{self.address}: the server answered {status}", "file") from error
            raise HubError(
                f"{self.address} cannot be reached ({type(error).__name__}: {error})",
                "unreachable",
                hint=UNREACHABLE_HINT,
            ) from error
        except OSError as error:
            raise HubError(f"{self.address} cannot be written to {self.folder}: {error}", "disk") from error


def _digest(path: Path) -> str:
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
