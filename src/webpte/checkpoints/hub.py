"""Download checkpoints by name, `hf:org/name[@revision]`, from a Hugging Face hub into the hub's shared cache.

The listing of a commit has every file with its hash. config.json and other small files are downloaded first and checked
before any weights. Only files that an export reads are downloaded: no pickles and no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import FormatError, InputError, UnsupportedError
from ..json_files import read_json_object
from ..progress import OnProgress
from ..suppress_output import suppress_logs
from .hub_files import CachedRepository, HubFile, fetch_files, hub_errors
from .hub_listing import HubName, Listing, list_files
from .sentence_transformers import read_modules

_INDEX = "model.safetensors.index.json"
_MODULES = "modules.json"  # of sentence-transformers: lists a folder for each step, such as 1_Pooling
_WITH_WEIGHTS = ("Transformer", "Dense")
_SMALL = {
    *("config.json", "generation_config.json", "adapter_config.json", _INDEX),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "vocab.txt"),
    *(_MODULES, "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("preprocessor_config.json", "processor_config.json"),
}


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


def fetch(source: str, progress: OnProgress, validate: Callable[[Path], None]) -> HubCheckpoint:
    """Download the files that an export reads. `validate` checks config.json before weights are downloaded."""
    name = HubName.parse(source)
    with hub_errors(name.repository, name.revision), suppress_logs():
        listing = list_files(name)
        place = CachedRepository(name.repository, listing.commit)
        if name.file is not None:
            _refuse_program(source, name.file)
            files = [listing.file(name, name.file)]
            path = fetch_files(place, "weights", files, progress) / name.file
            return _hub_checkpoint(name, listing, path, files)
        _refuse_without_config(name, listing)
        parts = _parts(listing, place, progress)
        names = {part + file for part in parts for file in _SMALL}
        small = [file for file in listing.files.values() if file.name in names]
        folder = fetch_files(place, "config", small, progress)
        validate(folder)
        weights = [file for part, weighs in parts.items() if weighs for file in _weights(name, listing, folder, part)]
        fetch_files(place, "weights", weights, progress)
    return _hub_checkpoint(name, listing, folder, [*small, *weights])


def _hub_checkpoint(name: HubName, listing: Listing, path: Path, files: Iterable[HubFile]) -> HubCheckpoint:
    hashes = {file.name: file.hash for file in files}
    return HubCheckpoint(path, name.repository, name.revision, listing.commit, hashes)


# ---------------------------------------------------------------- which files


def _parts(listing: Listing, place: CachedRepository, progress: OnProgress) -> dict[str, bool]:
    """Return the folders of modules, such as "" or "1_Pooling/", and whether each has weights."""
    if _MODULES not in listing.files:
        return {"": True}
    folder = fetch_files(place, "modules", [listing.files[_MODULES]], progress)
    modules = {f"{part}/" if part else "": kind in _WITH_WEIGHTS for kind, part in read_modules(folder)}
    return {"": False} | modules


def _refuse_program(source: str, file: str) -> None:
    if file.endswith(".pte"):
        raise InputError(
            argument="checkpoint",
            expected="hf:org/name, hf:org/name@revision or hf:org/name/file.gguf",
            got=f"{source}, a program",
            code="model_kind",
            hint=f"Run it: webpte run {source}, or webpte chat {source} if it is a language model.",
        )


def _refuse_without_config(name: HubName, listing: Listing) -> None:
    if "config.json" in listing.files or _MODULES in listing.files:
        return
    if packed := sorted(file for file in listing.files if file.endswith(".gguf")):
        lines = "\n".join(f"  hf:{name.repository}/{file}" for file in packed)
        raise InputError(
            f"{name.repository} has several GGUF files; choose one of them:\n{lines}", code="ambiguous_file"
        )
    raise FormatError(f"{name.repository}@{name.revision} has neither config.json nor a .gguf file", code="no_model")


def _weights(name: HubName, listing: Listing, folder: Path, part: str) -> list[HubFile]:
    """Return the safetensors in the folder `part` that transformers would load."""
    whole, index = f"{part}model.safetensors", f"{part}{_INDEX}"
    if whole in listing.files:
        return [listing.files[whole]]
    if index in listing.files:
        try:
            shards = sorted(set(read_json_object(folder / index)["weight_map"].values()))
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
        return [listing.file(name, part + shard) for shard in shards]
    endings = (".bin", ".pt", ".pth", ".safetensors")
    others = sorted(file for file in listing.files if file.startswith(part) and file.endswith(endings))
    has = f"; it has {', '.join(others[:4])}. Pickles run code and are not read" if others else ""
    raise UnsupportedError(f"{name.repository} has neither {whole} nor {index}{has}", others, code="no_safetensors")
