"""List and remove the models that webpte has downloaded: repositories in the hub's cache, and programs by address."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..partial_files import removing
from ..sources import HUB
from .hub_files import METADATA_FOLDER
from .web_programs import RECORD, downloads_folder

_MODELS = (".pte", ".ptd", ".gguf", ".safetensors")


@dataclass(frozen=True)
class Download:
    """A repository of a hub, or a program that was downloaded by its address."""

    source: str  # hf:org/name, or the address
    path: Path  # its folder
    bytes: int  # of all files, partial downloads too
    models: tuple[str, ...]  # programs and weights that are complete, by their names in the repository
    downloaded: float  # time of the clock

    def remove(self) -> None:
        """Delete the folder. Programs that have its files open keep them until they end, but Windows refuses."""
        with removing(self.path):
            shutil.rmtree(self.path)


def list_downloads() -> list[Download]:
    """Return the downloads, the latest first. Repositories that only other tools have used are left out."""
    return sorted([*_repositories(), *_programs()], key=lambda download: -download.downloaded)


def _repositories() -> Iterator[Download]:
    if find_spec("huggingface_hub") is None:
        return
    from huggingface_hub import constants

    for metadata in Path(constants.HF_HUB_CACHE).glob(f"models--*/{METADATA_FOLDER}"):
        root = metadata.parent
        names = {
            path.relative_to(snapshot).as_posix()
            for snapshot in root.glob("snapshots/*")
            for path in snapshot.rglob("*")
            if path.suffix in _MODELS and path.exists()
        }
        name = root.name.removeprefix("models--").replace("--", "/", 1)
        yield Download(f"{HUB}{name}", root, _bytes(root), tuple(sorted(names)), metadata.stat().st_mtime)


def _programs() -> Iterator[Download]:
    for folder in downloads_folder().glob("*"):
        try:
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            source, file = str(record["address"]), str(record["file"])
        except (OSError, ValueError, KeyError, TypeError):
            source, file = folder.name, ""  # a download that was interrupted before it had a record
        if folder.is_dir():
            models = (file,) if file and (folder / file).exists() else ()
            yield Download(source, folder, _bytes(folder), models, folder.stat().st_mtime)


def _bytes(folder: Path) -> int:
    """Return the bytes of the files in a folder. Links to them are not counted."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
