"""A job whose output is one parquet file: its blocks are in a folder beside it until the file is complete."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, InputError
from ..partial_files import removing
from .output import COUNTS, JOB_FILE, METADATA_KEY, PARQUET_OPTIONS, check_same_job, replacing
from .tables import SUFFIXES, InputTables, arrow

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS, ROW_GROUP_BYTES = 1 << 16, 1 << 26  # blocks are joined to row groups of about this size


def is_file_name(output: Path) -> bool:
    """Return whether the output of a job is one file: a name that ends in .parquet and is not that of a folder."""
    suffix = output.suffix.lower()
    if output.is_dir() or suffix not in SUFFIXES:
        return False
    if suffix != ".parquet":
        raise InputError(
            argument="output",
            expected="a folder or a .parquet file",
            got=f"{str(output)!r}",
            code="unsupported_output",
            hint=f"Name {str(output.with_suffix('.parquet'))!r}.",
        )
    return True


def blocks_folder(file: Path) -> Path:
    """Return the folder that holds the blocks of a file until it is complete."""
    return file.with_name(f"{file.name}.blocks")


def check_one_schema(inputs: InputTables) -> None:
    """Check that all input files have the same columns, so that one file can hold their rows."""
    first = inputs.schema(inputs.files[0])
    for file in inputs.files[1:]:
        if not inputs.schema(file).equals(first, check_metadata=False):
            raise InputError(
                argument="output",
                expected="a folder, because the input files have different columns or types",
                got="a .parquet file",
                code="different_columns",
                hint=f"Compare {inputs.files[0]} and {file}, or name a folder.",
            )


def read_finished(file: Path, identity: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """Return the counts of a file that an earlier run has finished. It must be of the same job and the same rows."""
    try:
        metadata = arrow("pyarrow.parquet").read_schema(file).metadata or {}
        record = json.loads(metadata[METADATA_KEY])
        counts = {key: int(record[key]) for key in COUNTS}
        stored, blocks = record["job"], record["blocks_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "exists, and is not the output of a batch job",
            argument=str(file),
            code="foreign_file",
            hint="Choose another name, or delete it.",
        ) from error
    check_same_job(file, stored, identity)
    if blocks != _hash(names):
        raise InputError(
            "holds results of other rows: the input has changed since",
            argument=str(file),
            code="other_rows",
            hint="Delete it to compute all rows, or name a folder, in which a later run computes only changed rows.",
        )
    return counts


def write_file(
    file: Path, folder: Path, identity: Mapping[str, Any], totals: Mapping[str, int], names: Sequence[str]
) -> None:
    """Join the blocks of a folder to one file, move it into place, and remove the folder."""
    parquet = arrow("pyarrow.parquet")
    record = {**totals, "job": dict(identity), "blocks_sha256": _hash(names)}
    schema: Any = None
    with replacing(file) as temporary:
        waiting: list[pa.Table] = []
        writer: Any = None
        for number, name in enumerate(names):
            table = parquet.ParquetFile(folder / name).read()
            if schema is None:
                metadata = {**(table.schema.metadata or {}), METADATA_KEY: json.dumps(record)}
                schema = table.schema.with_metadata(metadata)
                writer = parquet.ParquetWriter(temporary, schema, **PARQUET_OPTIONS)
            waiting.append(table.cast(schema))
            last = number == len(names) - 1
            if last or sum(map(len, waiting)) >= ROW_GROUP_ROWS or sum(t.nbytes for t in waiting) >= ROW_GROUP_BYTES:
                writer.write_table(arrow().concat_tables(waiting))
                waiting = []
        writer.close()
    remove_blocks(file)


def remove_blocks(file: Path) -> None:
    """Remove the folder with the blocks of a file that is complete."""
    folder = blocks_folder(file)
    if (folder / JOB_FILE).exists():
        with removing(folder):
            shutil.rmtree(folder)


def _hash(names: Sequence[str]) -> str:
    """Return a hash of the names of all blocks, each of which has a hash of its rows, the model and the options."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
