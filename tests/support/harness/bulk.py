"""Tables of texts for `webpte batch`, and what is left of a run: every file with its bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq

from webpte.batch.journal import SUFFIX, RowJournal

from .children import ROOT, SRC

MARK = "WEBPTE_TESTS_MARK"  # what shows processes that began here from others
os.environ[MARK] = uuid.uuid4().hex
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "that", "dogs", "run", "far", "away", "from", "home")


def texts(count: int, seed: int = 0, mean: float = 1.6, words: Sequence[str] = WORDS, most: int = 200) -> list[str]:
    """Sentences of mixed lengths."""
    random = np.random.default_rng(seed)
    sizes = random.lognormal(mean, 0.5, count).clip(1, most).astype(int)
    return [" ".join(random.choice(words, size)) for size in sizes]


def write_parquet(path: Path, values: Sequence[Any], row_group: int = 1 << 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(len(values)), "text": values}), path, row_group_size=row_group)
    return path


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of each file by its name."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kept_rows(folder: Path) -> set[tuple[str, int]]:
    """Return the rows in journals of blocks that are not complete, by the journal and the row of the block."""
    return {
        (path.name, row)
        for path in folder.rglob(f".*{SUFFIX}")
        for row in RowJournal(path.parent, path.name.removeprefix(".").removesuffix(SUFFIX)).rows
    }


def read(folder: Path) -> pa.Table:
    """Return all rows, as anyone reads such a folder."""
    return pq.read_table(folder)


def vectors(table: pa.Table, name: str = "embedding") -> np.ndarray:
    """(n, D); NaN where there is none."""
    return np.array([row if row is not None else [np.nan] for row in table[name].to_pylist()], np.float32)


# ---------------------------------------------------------------- killing


LOGGED = """
import os, sys
from webpte.batch.journal import RowJournal
from webpte.cli import entry

log = os.open(sys.argv.pop(1), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
append = RowJournal.append

def logged(journal, part):
    os.write(log, "".join(f"{row} " for row in part.rows).encode())
    append(journal, part)

RowJournal.append = logged
entry()
"""


def start_batch(*arguments: object, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start `webpte batch` in another process. `log` gets the rows that the model has finished, for `finished_rows`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SRC, ROOT)))}
    program = ["-m", "webpte"] if log is None else ["-c", LOGGED, str(log)]
    command = [sys.executable, *program, "batch", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finished_rows(log: Path) -> set[int]:
    """Return the rows that a model has finished, by the log of a process."""
    return set(map(int, log.read_text(encoding="utf-8").split())) if log.exists() else set()


def kill_when(child: subprocess.Popen[bytes], reached: Callable[[], bool], seconds: float = 120) -> bool:
    """SIGKILL as soon as something is reached; False if the child has ended before, which it did well."""
    wait_until(child, reached, seconds)
    killed = child.poll() is None
    child.kill()
    _, text = child.communicate()
    assert killed or child.returncode == 0, text.decode()
    return killed


def wait_until(child: subprocess.Popen[bytes], reached: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something is reached, or the child has ended."""
    limit = time.monotonic() + seconds
    while child.poll() is None and not reached():
        assert time.monotonic() < limit, "nothing happened to wait for"
        time.sleep(0.002)


def actor_processes() -> list[int]:
    """The processes of actors that hold a model, the oldest first; of a cluster that this process has started."""
    results = [process for process in psutil.process_iter(["cmdline", "create_time"]) if _is_ours(process)]
    return [process.pid for process in sorted(results, key=lambda process: process.info["create_time"])]


def _is_ours(process: Any) -> bool:
    name = (process.info["cmdline"] or [""])[0]
    try:  # Ray's processes are not one's children, but inherit variables
        return name.startswith("ray::") and "(Actor)" in name and process.environ().get(MARK) == os.environ[MARK]
    except psutil.Error:
        return False  # it has ended
