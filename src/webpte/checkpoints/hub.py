"""Download checkpoints by name, `hf:org/name[@revision]`, from a Hugging Face hub into the hub's shared cache.

The listing of a commit has every file with its hash. config.json and other small files are downloaded first and checked
before any weights. Only files that an export reads are downloaded: no pickles and no code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeGuard

from ..errors import FormatError, HubError, InputError, UnsupportedError
from ..partial_files import atomic_file
from ..progress import OnProgress
from ..suppress_output import suppress_logs
from ..text import size
from .hub_files import CachedRepository, HubFile, fetch_file, hub_errors, network_errors
from .sentence_transformers import read_modules

PathLike = str | os.PathLike[str]

_NAME = re.compile(r"hf:(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<file>[^@]+))?(?:@(?P<revision>.+))?")
_INDEX = "model.safetensors.index.json"
_MODULES = "modules.json"  # of sentence-transformers: lists a folder for each step, such as 1_Pooling
_WITH_WEIGHTS = ("Transformer", "Dense")
_SMALL = {
    *("config.json", "generation_config.json", "adapter_config.json", _INDEX),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "vocab.txt"),
    *(_MODULES, "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("preprocessor_config.json", "processor_config.json"),
}
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubName:
    """The parts of `hf:org/name[/file.gguf][@revision]`."""

    repository: str
    file: str | None
    revision: str

    @classmethod
    def parse(cls, text: str) -> HubName:
        match = _NAME.fullmatch(text)
        file = match["file"] if match else None
        if not match or (file is not None and not file.endswith(".gguf")):
            raise InputError(
                argument="checkpoint",
                expected="hf:org/name, hf:org/name@revision or hf:org/name/file.gguf",
                got=repr(text),
                code="invalid_name",
            )
        return cls(match["repository"], file, match["revision"] or "main")


@dataclass(frozen=True)
class HubCheckpoint:
    """A checkpoint in the hub's cache, with its commit and the hashes of its files."""

    path: Path  # of the folder, or of the .gguf file
    repository: str
    revision: str  # as in the name
    commit: str  # of the revision
    files: dict[str, str]  # hash by name

    def write(self, target: Path) -> None:
        """Write NAME.source.json beside a program: the commit and the hashes, to repeat the export."""
        origin = {name: value for name, value in asdict(self).items() if name != "path"}
        target.with_name(f"{target.stem}.source.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Listing:
    commit: str
    files: dict[str, HubFile]


def is_hub_name(source: PathLike) -> TypeGuard[str]:
    return isinstance(source, str) and source.startswith("hf:")


def fetch(source: str, progress: OnProgress, validate: Callable[[Path], None]) -> HubCheckpoint:
    """Download the files that an export reads. `validate` checks config.json before weights are downloaded."""
    name = HubName.parse(source)
    with hub_errors(name.repository, name.revision), suppress_logs():
        listing = _list(name)
        place = CachedRepository(name.repository, listing.commit)
        if name.file is not None:
            files = [_listed(name, listing, name.file)]
            path = _fetch_all(place, "weights", files, progress) / name.file
            return _hub_checkpoint(name, listing, path, files)
        _refuse_without_config(name, listing)
        parts = _parts(listing, place, progress)
        names = {part + file for part in parts for file in _SMALL}
        small = [file for file in listing.files.values() if file.name in names]
        folder = _fetch_all(place, "config", small, progress)
        validate(folder)
        weights = [file for part, weighs in parts.items() if weighs for file in _weights(name, listing, folder, part)]
        _fetch_all(place, "weights", weights, progress)
    return _hub_checkpoint(name, listing, folder, [*small, *weights])


def _hub_checkpoint(name: HubName, listing: _Listing, path: Path, files: Iterable[HubFile]) -> HubCheckpoint:
    hashes = {file.name: file.hash for file in files}
    return HubCheckpoint(path, name.repository, name.revision, listing.commit, hashes)


def _fetch_all(place: CachedRepository, what: str, files: list[HubFile], progress: OnProgress) -> Path:
    """Download files that are missing, and return their folder in the cache."""
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


# ---------------------------------------------------------------- which files


def _parts(listing: _Listing, place: CachedRepository, progress: OnProgress) -> dict[str, bool]:
    """Return the folders of modules, such as "" or "1_Pooling/", and whether each has weights."""
    if _MODULES not in listing.files:
        return {"": True}
    folder = _fetch_all(place, "modules", [listing.files[_MODULES]], progress)
    modules = {f"{part}/" if part else "": kind in _WITH_WEIGHTS for kind, part in read_modules(folder)}
    return {"": False} | modules


def _list(name: HubName) -> _Listing:
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
    listing = _Listing(info.sha, {file.name: file for file in files if file is not None})
    _remember(name, listing)
    return listing


def _remember(name: HubName, listing: _Listing) -> None:
    folder = CachedRepository(name.repository, listing.commit).create()
    text = json.dumps({"commit": listing.commit, "files": [asdict(file) for file in listing.files.values()]})
    for revision in (name.revision, listing.commit):
        path = folder / f"{revision.replace('/', '--')}.json"
        with atomic_file(path) as temporary:
            Path(temporary).write_text(text, encoding="utf-8")


def _recall(name: HubName) -> _Listing | None:
    try:
        path = CachedRepository(name.repository, "").metadata / f"{name.revision.replace('/', '--')}.json"
        listing = json.loads(path.read_text(encoding="utf-8"))
        return _Listing(listing["commit"], {file["name"]: HubFile(**file) for file in listing["files"]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, HubError):
        return None


def _listed(name: HubName, listing: _Listing, file: str) -> HubFile:
    if file in listing.files:
        return listing.files[file]
    others = sorted(other for other in listing.files if Path(other).suffix == Path(file).suffix)
    has = f"it has {', '.join(others)}" if others else f"it has no {Path(file).suffix} file"
    raise HubError(f"{name.repository}@{name.revision} has no {file}; {has}", "file")


def _refuse_without_config(name: HubName, listing: _Listing) -> None:
    if "config.json" in listing.files or _MODULES in listing.files:
        return
    if packed := sorted(file for file in listing.files if file.endswith(".gguf")):
        lines = "\n".join(f"  hf:{name.repository}/{file}" for file in packed)
        raise InputError(
            f"{name.repository} has several GGUF files; choose one of them:\n{lines}", code="ambiguous_file"
        )
    raise FormatError(f"{name.repository}@{name.revision} has neither config.json nor a .gguf file", code="no_model")


def _weights(name: HubName, listing: _Listing, folder: Path, part: str) -> list[HubFile]:
    """Return the safetensors in the folder `part` that transformers would load."""
    whole, index = f"{part}model.safetensors", f"{part}{_INDEX}"
    if whole in listing.files:
        return [listing.files[whole]]
    if index in listing.files:
        try:
            shards = sorted(set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                f"{name.repository}: {index}: expected a weight_map of file names", code="weight_map"
            ) from error
        if unknown := [shard for shard in shards if not str(shard).endswith(".safetensors")]:
            raise UnsupportedError(
                f"{name.repository}: {index}: expected .safetensors files, got {unknown[0]}",
                unknown,
                code="no_safetensors",
            )
        return [_listed(name, listing, part + shard) for shard in shards]
    endings = (".bin", ".pt", ".pth", ".safetensors")
    others = sorted(file for file in listing.files if file.startswith(part) and file.endswith(endings))
    has = f"; it has {', '.join(others[:4])}. Pickles run code and are not read" if others else ""
    raise UnsupportedError(f"{name.repository} has neither {whole} nor {index}{has}", others, code="no_safetensors")
