"""List the files of a repository on a Hugging Face hub, before anything is downloaded."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import HubError, InputError
from ..partial_files import atomic_file
from .hub_files import CachedRepository, HubFile, network_errors

_NAME = re.compile(r"hf:(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<file>[^@]+))?(?:@(?P<revision>.+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
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
    from huggingface_hub import HfApi, constants, errors

    try:
        api = HfApi(endpoint=constants.ENDPOINT)
        info = api.model_info(name.repository, revision=name.revision, files_metadata=True, timeout=30)
    except network_errors() as error:
        status = getattr(getattr(error, "response", None), "status_code", 503)
        remembered = _recall(name) if status >= 500 else None
        if remembered is None:
            raise
        return remembered
    except errors.HFValidationError:  # of an invalid name; it is a ValueError too
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:  # the library does not check the listing's form
        raise HubError(f"{name.repository}: the hub's listing cannot be read: {error!r:.200}", "listing") from error
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise HubError(
            f"{name.repository}@{name.revision}: expected a commit hash from the hub, got {info.sha!r:.100}", "hash"
        )
    files = [HubFile.of(sibling) for sibling in info.siblings or ()]
    listing = Listing(info.sha, {file.name: file for file in files if file is not None})
    _remember(name, listing)
    return listing


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
