"""Read input files in blocks of rows: parquet by row groups, JSON lines and CSV as a whole."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..container.files import similar_paths
from ..errors import Error, FormatError, InputError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}


@dataclass(frozen=True)
class RowBlock:
    """Rows that are computed and written together."""

    file: str  # relative to the input folder
    group: int  # the row group
    first: int  # row in the group
    rows: int


def arrow(module: str = "pyarrow") -> Any:
    """Return a module of pyarrow."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"batch jobs require the pyarrow package ({error})",
            code="missing_package",
            hint="Run: pip install 'webpte[batch]'.",
        ) from error


class InputTables:
    """A table file, or all table files of a folder in the order of their names."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InputError(
                f"no such file or folder{similar_paths(str(path))}", argument=str(path), code="missing_input"
            )
        self.folder = path if path.is_dir() else path.parent
        self.name = path.resolve().name
        candidates = sorted(path.rglob("*")) if path.is_dir() else [path]
        tables = [file for file in candidates if file.suffix.lower() in SUFFIXES and file.is_file()]
        if not tables:
            raise InputError(
                argument=str(path),
                expected=f"a table ({', '.join(SUFFIXES)}), or a folder of tables",
                got="a folder without tables" if path.is_dir() else f"a {path.suffix or 'suffixless'} file",
                code="not_a_table",
            )
        self.files = [file.relative_to(self.folder).as_posix() for file in tables]
        self._group_cache: tuple[tuple[str, int], pa.Table] | None = None  # the row group that was read last

    def blocks(self, rows: int) -> Iterator[RowBlock]:
        """Yield all blocks, each of at most `rows` rows of one row group."""
        for file in self.files:
            for group, count in enumerate(self._counts(file)):
                for first in range(0, count, rows):
                    yield RowBlock(file, group, first, min(rows, count - first))

    def read(self, block: RowBlock) -> pa.Table:
        """Return the rows of a block with all columns."""
        return self._group(block.file, block.group).slice(block.first, block.rows)

    def schema(self, file: str) -> pa.Schema:
        """Return the columns of a file, as cheaply as its format allows."""
        if self._format(file) == "parquet":
            return self._read(file, arrow("pyarrow.parquet").read_schema)
        return self._group(file, 0).schema

    def _counts(self, file: str) -> list[int]:
        """Return the number of rows of each row group."""
        if self._format(file) == "parquet":
            metadata = self._read(file, arrow("pyarrow.parquet").read_metadata)
            return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        return [self._group(file, 0).num_rows]

    def _group(self, file: str, group: int) -> pa.Table:
        if self._group_cache is None or self._group_cache[0] != (file, group):
            self._group_cache = None  # before the next one is read, so that only one is in memory
            table = self._read(file, lambda path: _READERS[self._format(file)](path, group))
            self._group_cache = (file, group), table
        return self._group_cache[1]

    def _format(self, file: str) -> str:
        return SUFFIXES[Path(file).suffix.lower()]

    def _read(self, file: str, read: Callable[[Path], Any]) -> Any:
        path = self.folder / file
        try:
            return read(path)
        except Error:
            raise
        except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are subclasses of these
            raise FormatError(
                f"cannot be read as {self._format(file)}: {error}", argument=str(path), code="unreadable"
            ) from error


def _parquet(path: Path, group: int) -> Any:
    with arrow("pyarrow.parquet").ParquetFile(path) as file:
        return file.read_row_group(group)


def _json(path: Path, group: int) -> Any:
    options = arrow("pyarrow.json").ReadOptions(block_size=_file_block_size(path))
    return arrow("pyarrow.json").read_json(path, read_options=options)


def _csv(path: Path, group: int) -> Any:
    options = arrow("pyarrow.csv").ReadOptions(block_size=_file_block_size(path))
    return arrow("pyarrow.csv").read_csv(path, read_options=options)


def _file_block_size(path: Path) -> int:
    """Return a block size that covers the file: all rows then decide the types, and no row is too long."""
    return int(min(max(path.stat().st_size, 1), 2**31 - 1))


_READERS = {"parquet": _parquet, "json": _json, "csv": _csv}
