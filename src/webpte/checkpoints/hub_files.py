"""Download single files of a hub into the shared cache: resumable, and checked against their hashes."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Error, HubError
from ..progress import OnProgress, Progress
from ..text import size
from .transfers import MAX_BYTES, UNREACHABLE_HINT, Report, network_errors, resume_download

METADATA_FOLDER = ".webpte"  # in the folder of a repository
_CHUNK = 1 << 22
_NAME = re.compile(r"[^\\:\x00-\x1f\x7f]{1,512}")  # without separators of folders or drives on Windows
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class HubFile:
    """A file in the listing of a commit."""

    name: str
    size: int
    hash: str  # SHA-256 of a large file's bytes, or Git's SHA-1 of a small one

    def __post_init__(self) -> None:
        """Refuse names and hashes that would be paths outside the cache: the hub is not trusted."""
        if not _is_name(self.name) or any(part in ("", ".", "..") for part in self.name.split("/")):
            raise HubError(f"the hub's listing: expected relative paths, got {self.name!r:.100}", "listing")
        if not isinstance(self.hash, str) or not _HASH.fullmatch(self.hash):
            raise HubError(f"{self.name}: expected a SHA-1 or SHA-256 hash, got {self.hash!r:.100}", "listing")
        if type(self.size) is not int or not 0 <= self.size <= MAX_BYTES:
            raise HubError(f"{self.name}: expected a size in bytes, got {self.size!r:.100}", "listing")

    @classmethod
    def of(cls, entry: Any) -> HubFile | None:
        """Return a file of the listing, or None if it has no hash or a name that some systems do not allow."""
        large = entry.get("lfs") or {}
        digest = large.get("sha256") if isinstance(large, dict) and large else entry.get("blobId")
        name, size = entry.get("rfilename"), entry.get("size")
        return None if size is None or digest is None or not _is_name(name) else cls(name, size, digest)


def _is_name(value: object) -> bool:
    """Return whether every system allows the name of a file."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and value.isprintable()


@dataclass(frozen=True)
class CachedRepository:
    """The folders of one commit of a repository in the hub's cache."""

    repository: str
    commit: str

    @property
    def root(self) -> Path:
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE) / f"models--{self.repository.replace('/', '--')}"

    @property
    def metadata(self) -> Path:
        """Return the folder of webpte, beside those of the library: listings and partial downloads."""
        return self.root / METADATA_FOLDER

    @property
    def snapshot(self) -> Path:
        return self.root / "snapshots" / self.commit

    def create(self) -> Path:
        """Create the folder of webpte and return it."""
        self.metadata.mkdir(parents=True, exist_ok=True)
        return self.metadata

    def partial(self, file: HubFile) -> Path:
        return self.metadata / f"{file.hash}.partial"

    def bytes_present(self, file: HubFile) -> int:
        """Return the bytes of a file that are already in the cache."""
        for path in (self.snapshot / file.name, self.root / "blobs" / file.hash, self.partial(file)):
            if path.exists():
                return min(path.stat().st_size, file.size)
        return 0


def fetch_files(place: CachedRepository, what: str, files: list[HubFile], progress: OnProgress) -> Path:
    """Download files that are missing, after the free space is checked. Return their folder in the cache."""
    missing = sum(file.size - place.bytes_present(file) for file in files)
    free = shutil.disk_usage(place.create()).free
    if missing > free:
        raise HubError(
            f"{place.repository}: the download needs {size(missing)}; {place.create()} has {size(free)} free",
            "disk",
            hint="Free some space, or set HF_HOME to a folder on another disk.",
        )
    total, done = sum(file.size for file in files), 0
    for file in files:
        fetch_file(place, file, f"fetch {what}", (done, total), progress)
        done += file.size
    return place.snapshot


def fetch_file(
    place: CachedRepository, file: HubFile, stage: str, extent: tuple[int, int], progress: OnProgress
) -> None:
    """Download a file into the snapshot if it is missing, and check its hash. `extent` is (bytes before, total)."""
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
            f"{place.repository}: {file.name} in the cache does not have the hash {file.hash}. The copy was removed",
            "hash",
            hint="Try again: it is downloaded again.",
        )
    report(file.size)


def _download(place: CachedRepository, file: HubFile, report: Report) -> None:
    """Resume or start a download; move the file into the cache after its hash is checked."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

    if constants.is_offline_mode():
        raise HubError(f"{place.repository}: {file.name} is not in the cache, and HF_HUB_OFFLINE is set", "offline")
    partial = place.partial(file)
    with WeakFileLock(place.create() / f"{file.hash}.lock"):
        url = hf_hub_url(place.repository, file.name, revision=place.commit, endpoint=constants.ENDPOINT)
        resume_download(url, partial, file.size, build_hf_headers(), report)
        if _digest(partial, file) != file.hash:
            partial.unlink()
            raise HubError(
                f"{place.repository}: the download of {file.name} does not have the hash {file.hash}, and was removed",
                "hash",
                hint="Try again. If the error persists, check the proxy and the hub.",
            )
        blob = place.root / "blobs" / file.hash
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, blob)


def _link(place: CachedRepository, file: HubFile) -> None:
    """Link a file of the snapshot to its blob, as the library does."""
    pointer, blob = place.snapshot / file.name, place.root / "blobs" / file.hash
    pointer.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.symlink(os.path.relpath(blob, pointer.parent), pointer)
    except FileExistsError:
        return  # another process was first
    except OSError:  # Windows without the right to make links
        os.link(blob, pointer)


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


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """Convert errors of huggingface_hub and of the system to `HubError`."""
    from huggingface_hub import constants, errors

    where, host = f"{repository}@{revision}", constants.ENDPOINT
    try:
        yield
    except Error:
        raise
    except errors.GatedRepoError as error:
        raise HubError(
            f"{repository} is gated{_with_token()}",
            "gated",
            hint=f"Accept its conditions at {host}/{repository}, then set HF_TOKEN to a token of that account.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"{host} has no model {repository}, or it is private{_with_token()}",
            "repository",
            hint="Check the name. For a private model, set HF_TOKEN.",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(
            f"{repository} has no revision {revision!r}", "revision", hint="Name a branch, a tag or a commit."
        ) from error
    except errors.HFValidationError as error:
        raise HubError(f"hf:{repository} is not a valid name of a model: {error}", "repository") from error
    except errors.OfflineModeIsEnabled as error:
        raise HubError(
            f"{where} is not in the cache, and HF_HUB_OFFLINE is set",
            "offline",
            hint="Unset it for the download, or name a local file or folder.",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "no status")
        reason = "gated" if status in (401, 403) else "unreachable"
        token = _with_token() if reason == "gated" else ""
        hint = "Set HF_TOKEN to a token with access." if reason == "gated" else "Try again later."
        raise HubError(f"{host} answered {status} for {where}{token}", reason, hint=hint) from error
    except network_errors() as error:
        raise HubError(
            f"{host} cannot be reached for {where} ({type(error).__name__}: {error})",
            "unreachable",
            hint=UNREACHABLE_HINT,
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise HubError(
                f"{where}: the disk of {constants.HF_HUB_CACHE} is full",
                "disk",
                hint="Free some space, or set HF_HOME to a folder on another disk.",
            ) from error
        raise HubError(f"{where} cannot be written to {constants.HF_HUB_CACHE}: {error}", "disk") from error


def _with_token() -> str:
    from huggingface_hub import get_token

    with suppress(OSError):
        return " (the HF_TOKEN that is set has no access)" if get_token() else ""
    return ""
