"""A folder of finished blocks. A block is there whole or not at all, under a name that says what it was made of.

`OUT/<input file>/g<row group>-r<first row>-<hash>.parquet`: in the order of names, rows are in the order of the input.
What begins with `_` or `.` is no table to pyarrow, Spark and others: the job, the manifest, files that are unfinished.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError, InputError
from ..version import __version__
from .made import Made
from .tables import Block, arrow
from .wanted import ERROR

if TYPE_CHECKING:
    import pyarrow as pa

JOB, MANIFEST = "_job.json", "_manifest.json"
NOTE = b"webpte"  # in a block's metadata
OURS = re.compile(r"g\d{5}-r\d{9}-[0-9a-f]{16}\.parquet")
# Whatever pyarrow's defaults become: the same rows are the same bytes.
WRITER: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "write_statistics": True,
    "store_schema": True,
}


def block_name(block: Block, table: pa.Table, job: str) -> str:
    """Where the output of a block belongs, relative to the folder: by what its rows hold, and the job's digest.

    What rows hold is what they are written as: values, and neither how they were stored nor when.
    """
    sink = arrow().BufferOutputStream()
    arrow("pyarrow.parquet").write_table(table, sink, **WRITER)
    digest = hashlib.sha256(job.encode())
    digest.update(sink.getvalue())
    return f"{block.file}/g{block.group:05}-r{block.first:09}-{digest.hexdigest()[:16]}.parquet"


def with_made(table: pa.Table, made: Made) -> pa.Table:
    """A block's rows with what was made of them; null where a row failed."""
    pa = arrow()
    failed = [error is not None for error in made.errors]
    for name, values in made.columns.items():
        table = table.append_column(name, _column(name, values, failed))
    table = table.append_column(ERROR, pa.array(made.errors, pa.string()))
    about = {
        "version": __version__,
        "rows": len(failed),
        "failed": made.failed,
        "tokens": made.tokens,
        "computed_tokens": made.computed_tokens,
    }
    return table.replace_schema_metadata({**(table.schema.metadata or {}), NOTE: json.dumps(about)})


def _column(name: str, values: Any, failed: list[bool]) -> Any:
    """Vectors, (rows, D) or (rows,), have NaN where a row failed, and lists have None."""
    pa = arrow()
    if isinstance(values, list):
        return pa.array(values, pa.int32() if name.endswith("_tokens") else pa.string())
    if values.ndim == 1:
        return pa.array(values, pa.float32(), mask=np.array(failed, bool))
    flat = pa.array(values.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(failed, pa.bool_()))


def write_block(folder: Path, name: str, table: pa.Table) -> None:
    """To a name of its own first, then, whole and on the disk, to the final one."""
    final = folder / name
    final.parent.mkdir(parents=True, exist_ok=True)
    sink = arrow().BufferOutputStream()
    arrow("pyarrow.parquet").write_table(table, sink, **WRITER)
    _write(final, memoryview(sink.getvalue()), final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp"))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    _write(path, memoryview(text.encode()), path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp"))


def _write(final: Path, content: memoryview, temporary: Path) -> None:
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final)
    except FileNotFoundError:
        if not final.exists():  # else another run of the same job has finished, and swept
            raise InputError(f"{final} cannot be written: its folder was taken away while the job ran") from None
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{final} cannot be written: {error}. Make room, or name another folder") from error


def read_note(folder: Path, name: str) -> dict[str, int]:
    """How many rows, failed rows and tokens a finished block has."""
    try:
        metadata = arrow("pyarrow.parquet").read_schema(folder / name).metadata or {}
        found = json.loads(metadata[NOTE])
        return {key: int(found[key]) for key in ("rows", "failed", "tokens", "computed_tokens")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{folder / name} is not a block that webpte batch wrote: {error}. Delete it, and it is made again",
            code="damaged",
        ) from error


def check_job(folder: Path, job: Mapping[str, Any]) -> None:
    """Whether the folder is this job's; a new one becomes it."""
    path = folder / JOB
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                f"{folder} holds other files and no {JOB}; name an empty folder, or a new one", code="foreign_folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, job)
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        differing = [key for key in job if there.get(key) != job[key]]
    except (OSError, ValueError, AttributeError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error
    if differing:
        told = "; ".join(f"{key} was {_brief(there.get(key))}, now {_brief(job[key])}" for key in differing)
        raise InputError(
            f"{folder} belongs to another job: {told}. Name another folder, or delete this one", code="other_job"
        )


def sweep(folder: Path, keep: Collection[str]) -> int:
    """Remove blocks that no input has any more, and files that were never finished; how many blocks that were."""
    gone = 0
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.suffix == ".tmp" and path.name.startswith("."):
            path.unlink(missing_ok=True)
        elif OURS.fullmatch(path.name) and path.relative_to(folder).as_posix() not in keep:
            path.unlink(missing_ok=True)
            gone += 1
    return gone


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
