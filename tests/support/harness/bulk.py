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


def read(folder: Path) -> pa.Table:
    """Return all rows, as anyone reads such a folder."""
    return pq.read_table(folder)


def vectors(table: pa.Table, name: str = "embedding") -> np.ndarray:
    """(n, D); NaN where there is none."""
    return np.array([row if row is not None else [np.nan] for row in table[name].to_pylist()], np.float32)


# ---------------------------------------------------------------- killing


def start_batch(*arguments: object) -> subprocess.Popen[bytes]:
    """`webpte batch` in a process, and a session, of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SRC, ROOT)))}
    command = [sys.executable, "-m", "webpte", "batch", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_when(child: subprocess.Popen[bytes], reached: Callable[[], bool], seconds: float = 120) -> bool:
    """SIGKILL as soon as something is reached; False if the child has ended before, which it did well."""
    limit = time.monotonic() + seconds
    while child.poll() is None and not reached():
        assert time.monotonic() < limit, "nothing happened to kill it at"
        time.sleep(0.002)
    killed = child.poll() is None
    child.kill()
    _, text = child.communicate()
    assert killed or child.returncode == 0, text.decode()
    return killed


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
