"""Input files as blocks of rows: parquet by row groups, JSON lines and CSV whole. The only module that reads them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..container.near import alike
from ..errors import Error, FormatError, InputError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}


@dataclass(frozen=True)
class Block:
    """Rows that are computed, written and lost together."""

    file: str  # relative to the input's folder
    group: int  # the row group
    first: int  # row in the group
    rows: int


def arrow(module: str = "pyarrow") -> Any:
    """pyarrow, or what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(f"tables need the pyarrow package: pip install 'webpte[batch]' ({error})") from error


class Inputs:
    """A file, or all files of a folder that are tables, in the order of their names."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f"there is no input {path}{alike(str(path))}", code="missing_input")
        self.folder = path if path.is_dir() else path.parent
        self.name = path.resolve().name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        tables = [one for one in found if one.suffix.lower() in SUFFIXES and one.is_file()]
        if not tables:
            raise InputError(
                f"{path} is no table, or holds none; their names end in {', '.join(SUFFIXES)}", code="not_a_table"
            )
        self.files = [one.relative_to(self.folder).as_posix() for one in tables]
        self._kept: tuple[tuple[str, int], pa.Table] | None = None  # the last row group that was read

    def blocks(self, rows: int) -> Iterator[Block]:
        for file in self.files:
            for group, count in enumerate(self._counts(file)):
                for first in range(0, count, rows):
                    yield Block(file, group, first, min(rows, count - first))

    def read(self, block: Block) -> pa.Table:
        """The rows of a block, with all their columns."""
        return self._group(block.file, block.group).slice(block.first, block.rows)

    def schema(self, file: str) -> pa.Schema:
        """The columns of a file, as cheaply as its format allows."""
        if self._format(file) == "parquet":
            return self._tried(file, arrow("pyarrow.parquet").read_schema)
        return self._group(file, 0).schema

    def _counts(self, file: str) -> list[int]:
        """Rows of each row group."""
        if self._format(file) == "parquet":
            about = self._tried(file, arrow("pyarrow.parquet").read_metadata)
            return [about.row_group(group).num_rows for group in range(about.num_row_groups)]
        return [self._group(file, 0).num_rows]

    def _group(self, file: str, group: int) -> pa.Table:
        if self._kept is None or self._kept[0] != (file, group):
            self._kept = None  # before the next is read: one is in memory at a time
            self._kept = (file, group), self._tried(file, lambda path: _READERS[self._format(file)](path, group))
        return self._kept[1]

    def _format(self, file: str) -> str:
        return SUFFIXES[Path(file).suffix.lower()]

    def _tried(self, file: str, read: Callable[[Path], Any]) -> Any:
        path = self.folder / file
        try:
            return read(path)
        except Error:
            raise
        except (OSError, ValueError, KeyError) as error:  # pyarrow's own errors are kinds of these
            raise FormatError(f"{path} cannot be read as {self._format(file)}: {error}", code="unreadable") from error


def _parquet(path: Path, group: int) -> Any:
    with arrow("pyarrow.parquet").ParquetFile(path) as file:
        return file.read_row_group(group)


def _json(path: Path, group: int) -> Any:
    options = arrow("pyarrow.json").ReadOptions(block_size=_whole(path))
    return arrow("pyarrow.json").read_json(path, read_options=options)


def _csv(path: Path, group: int) -> Any:
    options = arrow("pyarrow.csv").ReadOptions(block_size=_whole(path))
    return arrow("pyarrow.csv").read_csv(path, read_options=options)


def _whole(path: Path) -> int:
    """A block for the whole file: types are told by all rows, and no row is too long for a block."""
    return int(min(max(path.stat().st_size, 1), 2**31 - 1))


_READERS = {"parquet": _parquet, "json": _json, "csv": _csv}
