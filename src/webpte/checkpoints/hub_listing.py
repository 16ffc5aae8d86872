"""List the files of a repository on a Hugging Face hub, before anything is downloaded."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from ..errors import HubError, InputError
from ..partial_files import atomic_file
from .hub_files import CachedRepository, HubFile
from .transfers import network_errors, read_limited

_NAME = re.compile(r"hf:(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<file>[^@]+))?(?:@(?P<revision>.+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_LISTING_BYTES = 64 << 20
_FILES = (".gguf", ".pte")  # that a name may end with


@dataclass(frozen=True)
class HubName:
    """The parts of `hf:org/name[/file][@revision]`."""

    repository: str
    file: str | None
    revision: str

    @classmethod
    def parse(cls, text: str) -> HubName:
        match = _NAME.fullmatch(text)
        file = match["file"] if match else None
        if not match or (file is not None and not file.endswith(_FILES)):
            raise InputError(
                argument="model",
                expected="hf:org/name, hf:org/name@revision, hf:org/name/file.gguf or hf:org/name/path/model.pte",
                got=repr(text),
                code="invalid_name",
            )
        return cls(match["repository"], file, match["revision"] or "main")


@dataclass(frozen=True)
class Listing:
    """The files of a commit."""

    commit: str
    files: dict[str, HubFile]

    def file(self, name: HubName, file: str) -> HubFile:
        """Return a file, or raise an error that names the others of its kind."""
        if file in self.files:
            return self.files[file]
        others = sorted(other for other in self.files if Path(other).suffix == Path(file).suffix)
        has = f"it has {', '.join(others)}" if others else f"it has no {Path(file).suffix} file"
        raise HubError(f"{name.repository}@{name.revision} has no {file}; {has}", "file")


def list_files(name: HubName) -> Listing:
    """Return every file of the revision, from the hub, or from the last listing if the hub cannot be reached."""
    try:
        listing = _parse(name, _request(name))
    except network_errors() as error:
        status = getattr(getattr(error, "response", None), "status_code", 503)
        remembered = _recall(name) if status >= 500 else None
        if remembered is None:
            raise
        return remembered
    _remember(name, listing)
    return listing


def _request(name: HubName) -> bytes:
    """Return the hub's listing, as it was sent."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]

    validate_repo_id(name.repository)
    revision = quote(name.revision, safe="")
    url = f"{constants.ENDPOINT}/api/models/{name.repository}/revision/{revision}?blobs=true"
    return read_limited(url, build_hf_headers(), MAX_LISTING_BYTES)


def _parse(name: HubName, text: bytes) -> Listing:
    """Return the files of a listing. The hub is not trusted."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HubError(f"{name.repository}: the hub's listing is not valid JSON: {error!r:.200}", "listing") from error
    entries = document.get("siblings", []) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise HubError(
            reason="listing",
            argument=name.repository,
            expected="a list of files from the hub",
            got=f"{document!r:.200}",
        )
    commit = document.get("sha")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise HubError(
            reason="hash",
            argument=f"{name.repository}@{name.revision}",
            expected="a commit hash from the hub",
            got=f"{commit!r:.100}",
        )
    files = [file for entry in entries if (file := HubFile.of(entry)) is not None]
    names = {file.name: file for file in files}
    if len(names) < len(files):
        raise HubError(f"{name.repository}: the hub's listing has a file twice", "listing")
    return Listing(commit, names)


def _remember(name: HubName, listing: Listing) -> None:
    folder = CachedRepository(name.repository, listing.commit).create()
    text = json.dumps({"commit": listing.commit, "files": [asdict(file) for file in listing.files.values()]})
    for revision in (name.revision, listing.commit):
        path = folder / f"{revision.replace('/', '--')}.json"
        with atomic_file(path) as temporary:
            Path(temporary).write_text(text, encoding="utf-8")


def _recall(name: HubName) -> Listing | None:
    try:
        path = CachedRepository(name.repository, "").metadata / f"{name.revision.replace('/', '--')}.json"
        listing = json.loads(path.read_text(encoding="utf-8"))
        return Listing(listing["commit"], {file["name"]: HubFile(**file) for file in listing["files"]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, HubError):
        return None
