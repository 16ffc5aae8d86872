"""Programs by name: `hf:org/name[/path/model.pte][@revision]`, or the address of a .pte file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ..container import MappedFile
from ..errors import UnsupportedError
from ..progress import OnProgress
from ..sources import RemoteProgram, is_hub_name, no_program
from ..suppress_output import suppress_logs
from .hub_files import fetch_files
from .hub_listing import HubName
from .hub_programs import HubPrograms, ProgramVariant
from .web_programs import WebProgram, hub_name_of


def fetch(name: str, progress: OnProgress) -> RemoteProgram | None:
    """Download a program and the files beside it. Return None for the repository of a checkpoint."""
    _require_hub(name)
    source = hub_name_of(name)
    if not is_hub_name(source):
        with suppress_logs():
            return WebProgram(source).fetch(progress)
    parsed = HubName.parse(source)
    if parsed.file is not None and not parsed.file.endswith(".pte"):
        return None
    with suppress_logs():
        repository = HubPrograms(parsed)
        chosen = repository.choose()
        if chosen is None:
            return None
        with repository.errors():
            folder = _download(repository, chosen, progress)
    return RemoteProgram(folder / chosen.file.name, repository.full_name(chosen), repository.describe(chosen))


def _download(repository: HubPrograms, chosen: ProgramVariant, progress: OnProgress) -> Path:
    """Download a program after the small files that belong to it. Return the folder of the repository."""
    fetch_files(repository.place, "files", repository.companions(chosen), progress)
    return fetch_files(repository.place, "program", [chosen.file, *repository.data(chosen)], progress)


@contextmanager
def open_files(name: str) -> Iterator[list[MappedFile]]:
    """Yield a program and its .ptd files. Only the ranges that are read are downloaded, unless the cache has them."""
    _require_hub(name)
    source = hub_name_of(name)
    with suppress_logs():
        files = _open_hub_files(source) if is_hub_name(source) else [WebProgram(source).open()]
    try:
        yield files
    finally:
        for file in files:
            file.close()


def _open_hub_files(source: str) -> list[MappedFile]:
    repository = HubPrograms(HubName.parse(source))
    chosen = repository.choose()
    if chosen is None:
        raise no_program(source)
    return [repository.open(file) for file in (chosen.file, *repository.data(chosen))]


def _require_hub(name: str) -> None:
    if find_spec("huggingface_hub") is None:
        raise UnsupportedError(
            f"{name} is downloaded with huggingface_hub, which is not installed",
            code="missing_package",
            hint="Run: pip install 'huggingface_hub>=1.3'",
        )
