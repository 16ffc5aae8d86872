"""Where a saved plan lies: its document, the texts of its kernels, and the files that its constants are ranges of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Protocol

from ..budgets import spend
from ..container import MappedFile
from ..errors import FormatError, InputError
from .saved import DOCUMENT, PathLike, kernel_file


class PlanFiles(Protocol):
    """What `opened` reads a plan from. Whatever it gives is checked there."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def mapped(self) -> list[MappedFile]:
        """Files that the plan will be read from while it is used."""

    def document(self) -> str: ...

    def text(self, number: int, kernel: Any) -> str:
        """The WGSL of a kernel, which is described by `kernel`."""

    def constants(self, name: str, size: int, sha256: Any) -> MappedFile:
        """The file of this size and hash."""


class PlanFolder:
    """A folder that `saved` wrote. The files of constants are those of `data`, or lie in the folder, or beside it."""

    def __init__(self, folder: PathLike, data: Iterable[PathLike] = ()) -> None:
        self.name = os.fspath(folder)
        self.mapped: list[MappedFile] = []
        self._candidates = [os.fspath(path) for path in data]

    def document(self) -> str:
        try:
            file = MappedFile(os.path.join(self.name, DOCUMENT))
        except FormatError as error:
            raise InputError(f"{self.name}: there is no plan: {error}") from error
        with file:
            return contents(file, "plan bytes")

    def text(self, number: int, kernel: Any) -> str:
        with MappedFile(os.path.join(self.name, kernel_file(number))) as file:
            return contents(file, "kernel text")

    def constants(self, name: str, size: int, sha256: Any) -> MappedFile:
        beside = [os.path.join(at, name) for at in (self.name, os.path.dirname(os.path.abspath(self.name)))]
        found = []
        for path in (*self._candidates, *filter(os.path.exists, beside)):
            file = self._map(path)
            if file.size == size and file.sha256() == sha256:
                return file
            found.append(f"{path} of {file.size} bytes" + (" with other contents" if file.size == size else ""))
        raise InputError(
            f"{self.name}: the plan's constants lie in {name} of {size} bytes; "
            f"found was {', '.join(found) or 'no file'}. "
            "Put that file into the plan's folder, or name it: open_plan(folder, data=[path]).",
            code="missing_file",
        )

    def _map(self, path: str) -> MappedFile:
        for file in self.mapped:
            if file.path == path:
                return file
        try:
            self.mapped.append(MappedFile(path))
        except FormatError as error:
            raise InputError(f"{self.name}: {error}", code=error.reason) from error
        return self.mapped[-1]


def contents(file: MappedFile, budget: str) -> str:
    """All of a file as text. It is a regular one, or could not have been mapped."""
    spend(budget, file.size, file.path)
    return str(file.view(0, file.size), "ascii")
