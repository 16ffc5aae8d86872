"""The output folder. Blocks are written atomically, under names with a hash of their rows and of the job.

`OUT/<input file>/g<row group>-r<first row>-<hash>.parquet`: in the order of names, rows are in the order of the input.
pyarrow, Spark and others skip names that begin with `_` or `.`: the job, the manifest, temporary files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, InputError
from ..partial_files import partial_path, removing
from ..version import __version__
from .journal import SUFFIX, sync_folder
from .results import BatchResult
from .tables import RowBlock, arrow
from .task_spec import ERROR_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

JOB_FILE, MANIFEST_FILE = "_job.json", "_manifest.json"
COUNTS = ("rows", "failed", "tokens", "computed_tokens")
METADATA_KEY = b"webpte"  # of the counts, in the schema metadata of a block
CHECKSUM_KEY = b"webpte_sha256"  # of the checksum of a block, in the metadata of the file
CHECKSUM_PLACEHOLDER = b"0" * 64
_CHECKSUM = re.compile(CHECKSUM_KEY + rb"..([0-9a-f]{64})", re.DOTALL)  # between them: Thrift's type and length
PARQUET_TAIL = struct.Struct("<I4s")  # length of the footer, magic
NESTED = ("options", "settings")  # fields of a job that consist of fields
SHOWN_CHARACTERS = 60  # of a value in a message
BLOCK_NAME = re.compile(r"g\d{5}-r\d{9}-[0-9a-f]{16}\.parquet")
# Explicit, so that the same rows are the same bytes whatever pyarrow's defaults become.
PARQUET_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "write_statistics": True,
    "store_schema": True,
}


def block_name(block: RowBlock, table: pa.Table, job: str) -> str:
    """Return the path of a block's output in the folder, by a hash of its rows and of the job's digest.

    The hash covers the values of the rows, neither their encoding in the input nor its modification time.
    """
    sink = arrow().BufferOutputStream()
    arrow("pyarrow.parquet").write_table(table, sink, **PARQUET_OPTIONS)
    digest = hashlib.sha256(job.encode())
    digest.update(sink.getvalue())
    return f"{block.file}/g{block.group:05}-r{block.first:09}-{digest.hexdigest()[:16]}.parquet"


def with_result(table: pa.Table, result: BatchResult) -> pa.Table:
    """Return the rows of a block with the computed columns, which are null where a row failed."""
    pa = arrow()
    failed = [error is not None for error in result.errors]
    for name, values in result.columns.items():
        table = table.append_column(name, _column(name, values, failed))
    table = table.append_column(ERROR_COLUMN, pa.array(result.errors, pa.string()))
    counts = {
        "version": __version__,
        "rows": len(failed),
        "failed": result.failed,
        "tokens": result.tokens,
        "computed_tokens": result.computed_tokens,
    }
    return table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA_KEY: json.dumps(counts)})


def _column(name: str, values: Any, failed: list[bool]) -> Any:
    """Return a list, or an array (rows,) or (rows, D), as an Arrow array."""
    pa = arrow()
    if isinstance(values, list):
        return pa.array(values, pa.int32() if name.endswith("_tokens") else pa.string())
    if values.ndim == 1:
        return pa.array(values, pa.float32(), mask=np.array(failed, bool))
    flat = pa.array(values.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(failed, pa.bool_()))


def write_block(folder: Path, name: str, table: pa.Table) -> None:
    """Write a block atomically, with its checksum.

    The checksum is in the block itself, so that one rename commits both, whichever process of the job writes it. It is
    the SHA-256 of the file with 64 zeros in its place.
    """
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = arrow().BufferOutputStream()
    with arrow("pyarrow.parquet").ParquetWriter(sink, table.schema, **PARQUET_OPTIONS) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({CHECKSUM_KEY: CHECKSUM_PLACEHOLDER})
    content = bytearray(sink.getvalue())
    content[_checksum_place(content)] = hashlib.sha256(content).hexdigest().encode()
    _write(path, memoryview(content))


def block_is_intact(folder: Path, name: str) -> bool:
    """Return whether a block has the checksum that it was written with. False for blocks without a checksum."""
    try:
        content = bytearray((folder / name).read_bytes())
        place = _checksum_place(content)
    except (OSError, ValueError):
        return False
    stored = bytes(content[place])
    content[place] = CHECKSUM_PLACEHOLDER
    return hashlib.sha256(content).hexdigest().encode() == stored


def _checksum_place(content: bytearray) -> slice:
    """Return where the checksum is, in the footer of a parquet file. Raises ValueError if it has none."""
    length, _ = PARQUET_TAIL.unpack(content[-PARQUET_TAIL.size :].rjust(PARQUET_TAIL.size, b"\0"))
    first = max(len(content) - PARQUET_TAIL.size - length, 0)
    matches = list(_CHECKSUM.finditer(content, first))
    if not matches:
        raise ValueError("no checksum")
    return slice(*matches[-1].span(1))  # the last: keys of the input's own metadata come before


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    _write(path, memoryview((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()))


def _write(path: Path, content: memoryview) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary file. At the end it is flushed to the disk and renamed to `path`."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # several machines may write to one folder
    try:
        with partial_path(temporary):
            yield temporary
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
    except FileNotFoundError:
        if not path.exists():  # else another run of the same job finished and removed temporary files
            raise InputError(
                "cannot be written: its folder was removed while the job ran", argument=str(path), code="folder_removed"
            ) from None
    except OSError as error:
        raise InputError(
            f"cannot be written: {error}",
            argument=str(path),
            code="write_failed",
            hint="Free disk space, or choose another folder.",
        ) from error


def read_block_counts(folder: Path, name: str) -> dict[str, int]:
    """Return the numbers of rows, failed rows and tokens of a finished block."""
    try:
        metadata = arrow("pyarrow.parquet").read_schema(folder / name).metadata or {}
        counts = json.loads(metadata[METADATA_KEY])
        return {key: int(counts[key]) for key in COUNTS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"not a block that webpte batch wrote: {error}",
            argument=str(folder / name),
            code="damaged",
            hint="Delete it, and run again to compute it.",
        ) from error


def check_job(folder: Path, job: Mapping[str, Any]) -> None:
    """Check that the folder belongs to this job. A new or empty folder is assigned to it."""
    path = folder / JOB_FILE
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                argument=str(folder),
                expected=f"an empty or new folder, or one with {JOB_FILE}",
                got="a folder with other files",
                code="foreign_folder",
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, job)
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot be read: {error}", argument=str(path), code="unreadable") from error
    check_same_job(folder, stored, job)


def check_same_job(output: Path, stored: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Check that an output is of this job. The error names each field that differs."""
    if changes := changed_fields({key: stored.get(key) for key in job}, job):
        raise InputError(
            f"holds results of another job: {'; '.join(changes)}",
            argument=str(output),
            code="other_job",
            hint="Choose another output, or delete this one.",
        )


def changed_fields(stored: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each field that differs, in fields of fields too, such as `max_new_tokens was 8, now 9`."""
    changes = []
    for key in dict.fromkeys((*stored, *job)):
        before, now = stored.get(key), job.get(key)
        if before == now:
            continue
        if key == "model":
            changes.append("the model is another file")  # its fingerprint says nothing to a reader
        elif key in NESTED and isinstance(before or {}, dict) and isinstance(now or {}, dict):
            changes += changed_fields(before or {}, now or {})
        else:
            changes.append(f"{key} was {_abridged(before, now)}, now {_abridged(now, before)}")
    return changes


def _abridged(value: object, other: object) -> str:
    """Return a value as JSON. A long one is cut to where it begins to differ from the other."""
    if value is None:
        return "not set"
    text, compared = (json.dumps(one, ensure_ascii=False) for one in (value, other))
    if len(text) <= SHOWN_CHARACTERS:
        return text
    differing = (place for place, pair in enumerate(zip(text, compared, strict=False)) if pair[0] != pair[1])
    first = max(next(differing, len(compared)) - SHOWN_CHARACTERS // 3, 0)
    shown = text[first:][:SHOWN_CHARACTERS]
    return f"{'...' if first else ''}{shown}{'...' if len(text) > first + len(shown) else ''}"


def remove_stale_blocks(folder: Path, keep: Collection[str]) -> int:
    """Remove temporary files, journals, empty folders and blocks not in `keep`. Return the number of blocks."""
    removed = 0
    with removing(folder):
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.suffix in (".tmp", SUFFIX) and path.name.startswith("."):
                path.unlink(missing_ok=True)
            elif BLOCK_NAME.fullmatch(path.name) and path.relative_to(folder).as_posix() not in keep:
                path.unlink(missing_ok=True)
                removed += 1
    return removed
