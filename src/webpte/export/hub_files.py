"""One file of a hub in the shared cache: fetched in as many goes as it takes, and never used with another hash."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import Error, HubError
from ..progress import OnProgress, Progress

_CHUNK = 1 << 22
_MAX_BYTES = 1 << 50  # of a file
_NAME = re.compile(r"[^\\:\x00-\x1f\x7f]{1,512}")  # without what separates folders or drives on Windows
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
Report = Callable[[int], None]


@dataclass(frozen=True)
class HubFile:
    name: str
    size: int
    hash: str  # SHA-256 of a large file's bytes, or Git's SHA-1 of a small one

    def __post_init__(self) -> None:
        """Refuse names and hashes that would become paths outside of the cache: the listing is the hub's."""
        if not _is_name(self.name) or any(part in ("", ".", "..") for part in self.name.split("/")):
            raise HubError(f"the hub lists a file named {self.name!r:.100}, which is not a relative path", "listing")
        if not isinstance(self.hash, str) or not _HASH.fullmatch(self.hash):
            raise HubError(f"{self.name}: expected a SHA-1 or SHA-256 hash, got {self.hash!r:.100}", "listing")
        if type(self.size) is not int or not 0 <= self.size <= _MAX_BYTES:
            raise HubError(f"{self.name}: expected a size in bytes, got {self.size!r:.100}", "listing")

    @classmethod
    def of(cls, sibling: Any) -> HubFile | None:
        """Return None for a file without a hash, which could not be checked, and for one whose name not every system
        allows: they count as absent."""
        digest = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blob_id
        if sibling.size is None or digest is None or not _is_name(sibling.rfilename):
            return None
        return cls(sibling.rfilename, sibling.size, digest)


def _is_name(value: object) -> bool:
    """Whether every system allows it: it is UTF-8, and has no character that means something in a path."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and value.isprintable()


@dataclass(frozen=True)
class CachedRepository:
    """Where the hub's library keeps a commit of a repository."""

    repository: str
    commit: str

    @property
    def root(self) -> Path:
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE) / f"models--{self.repository.replace('/', '--')}"

    @property
    def notes(self) -> Path:
        """Ours, beside the library's own: listings, and files that are not whole yet."""
        return self.root / ".webpte"

    @property
    def snapshot(self) -> Path:
        return self.root / "snapshots" / self.commit

    def made(self) -> Path:
        self.notes.mkdir(parents=True, exist_ok=True)
        return self.notes

    def partial(self, file: HubFile) -> Path:
        return self.notes / f"{file.hash}.partial"

    def held(self, file: HubFile) -> int:
        """Bytes of it that are here."""
        for path in (self.snapshot / file.name, self.root / "blobs" / file.hash, self.partial(file)):
            if path.exists():
                return min(path.stat().st_size, file.size)
        return 0


def fetch_file(
    place: CachedRepository, file: HubFile, stage: str, extent: tuple[int, int], progress: OnProgress
) -> None:
    """Into the snapshot, checked against its hash whether it was there or not. `extent` is (before, of all files)."""
    before, total = extent

    def report(done: int) -> None:
        progress(Progress(stage, before + done, total, "bytes"))

    report(0)
    pointer, blob = place.snapshot / file.name, place.root / "blobs" / file.hash
    if not pointer.exists():
        if not blob.exists():
            _download(place, file, report)
        _link(place, file)
    if _digest(pointer, file) != file.hash:
        for path in (pointer, blob):
            path.unlink(missing_ok=True)
        raise HubError(
            f"{place.repository}: {file.name} is not what the hub promised, its hash is not {file.hash}. The copy was "
            "removed: export again to fetch it again",
            "hash",
        )
    report(file.size)


def _download(place: CachedRepository, file: HubFile, report: Report) -> None:
    """Go on where the last download was cut, by this process or another; enter the cache only when whole and right."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

    if constants.is_offline_mode():
        raise HubError(f"{file.name} of {place.repository} is not in the cache, and HF_HUB_OFFLINE is set", "offline")
    partial = place.partial(file)
    with WeakFileLock(place.made() / f"{file.hash}.lock"):
        if partial.exists() and partial.stat().st_size > file.size:
            partial.unlink()
        with open(partial, "ab") as opened:
            try:
                http_get(
                    hf_hub_url(place.repository, file.name, revision=place.commit, endpoint=constants.ENDPOINT),
                    _Counted(opened, report),  # type: ignore[arg-type]
                    resume_size=opened.tell(),
                    headers=build_hf_headers(),
                    expected_size=file.size,
                    tqdm_class=_silent(),
                )
            except OSError as error:
                if type(error) is not OSError or error.errno is not None:
                    raise
                opened.truncate(0)  # the library's word for another size than promised: refused below
        if _digest(partial, file) != file.hash:
            partial.unlink()
            raise HubError(
                f"{place.repository}: the hub sent other bytes for {file.name} than it promised: the hash is not "
                f"{file.hash}. Nothing of it was kept. Export again; if it stays so, a proxy or the hub is at fault",
                "hash",
            )
        blob = place.root / "blobs" / file.hash
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, blob)


def _link(place: CachedRepository, file: HubFile) -> None:
    """A name for the bytes, as the library makes it."""
    pointer, blob = place.snapshot / file.name, place.root / "blobs" / file.hash
    pointer.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.symlink(os.path.relpath(blob, pointer.parent), pointer)
    except FileExistsError:
        return  # another process was first
    except OSError:  # Windows without the right to make links
        os.link(blob, pointer)


class _Counted:
    """A file that tells how far it is with every write."""

    def __init__(self, file: BinaryIO, report: Report) -> None:
        self._file = file
        self._report = report

    def write(self, data: bytes) -> int:
        written = self._file.write(data)
        self._report(self._file.tell())
        return written

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self) -> int:
        return self._file.truncate()


def _silent() -> Any:
    """The library's bar, drawn nowhere: ours is."""
    from huggingface_hub.utils.tqdm import tqdm

    class Silent(tqdm):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **(options | {"disable": True}))  # type: ignore[no-untyped-call]

    return Silent


def _digest(path: Path, file: HubFile) -> str:
    if len(file.hash) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(usedforsecurity=False)
        digest.update(f"blob {path.stat().st_size}\0".encode())
    with open(path, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def network_errors() -> tuple[type[Exception], ...]:
    """Of whichever library the hub's speaks HTTP with, and the system's own."""
    from huggingface_hub.errors import HfHubHTTPError

    return (*(base for base in HfHubHTTPError.__bases__ if base is not OSError), ConnectionError, TimeoutError)


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """The library's errors as ours: what is not there, closed, out of reach, or without room."""
    from huggingface_hub import constants, errors

    where, host = f"{repository}@{revision}", constants.ENDPOINT
    try:
        yield
    except Error:
        raise
    except errors.GatedRepoError as error:
        raise HubError(
            f"{repository} is gated: accept its conditions at {host}/{repository}, then set HF_TOKEN to a token of "
            f"that account{_with_token()}",
            "gated",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"{host} has no model {repository}, or it is private. Check the spelling; for a private one set HF_TOKEN"
            f"{_with_token()}",
            "repository",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(
            f"{repository} has no revision {revision!r}: name a branch, a tag or a commit", "revision"
        ) from error
    except errors.HFValidationError as error:
        raise HubError(f"hf:{repository} cannot be the name of a model: {error}", "repository") from error
    except errors.OfflineModeIsEnabled as error:
        raise HubError(
            f"{where} was never fetched here, and HF_HUB_OFFLINE is set. Unset it once, or export a local folder",
            "offline",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "no status")
        reason = "gated" if status in (401, 403) else "unreachable"
        remedy = "set HF_TOKEN to a token that may read it" + _with_token() if reason == "gated" else "try again later"
        raise HubError(f"{host} answered {status} for {where}: {remedy}", reason) from error
    except network_errors() as error:
        raise HubError(
            f"{host} cannot be reached for {where} ({type(error).__name__}: {error}). What was fetched is kept: export "
            "again when the network is back",
            "unreachable",
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            text = (
                f"the disk of {constants.HF_HUB_CACHE} is full. Free some space, or set HF_HOME to a folder elsewhere"
            )
            raise HubError(f"{where}: {text}", "disk") from error
        raise HubError(f"{where} cannot be kept in {constants.HF_HUB_CACHE}: {error}", "disk") from error


def _with_token() -> str:
    from huggingface_hub import get_token

    with suppress(OSError):
        return " (one is set, and may not read it)" if get_token() else ""
    return ""
