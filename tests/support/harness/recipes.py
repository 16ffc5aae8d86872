"""The recipes of docs/batch.md for engines that people have, run as they stand there, as a reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..models.task_checkpoints import exported
from . import pages
from .bulk import read, texts, vectors, write_parquet
from .children import ROOT, SRC


def page_folder(folder: Path, rows: int) -> Path:
    """Return the encoder, a tiny one, and a table whose last row is null."""
    for file in exported("bert").glob("model*"):
        (folder / file.name.replace("model", "minilm", 1)).symlink_to(file)
    write_parquet(folder / "tickets.parquet", [*texts(rows - 1, most=18), None], row_group=100)
    return folder


def recipe(name: str) -> str:
    """Return a block of the page that is only parsed there."""
    blocks = pages.blocks(ROOT / "docs" / "batch.md")
    (result,) = [block.body for block in blocks if block.body.startswith(f"# {name}\n")]
    return result


def run_recipe(name: str, folder: Path, timeout: float = 600) -> None:
    """In a process of its own, which is what ends whatever an engine has started."""
    (folder / name).write_text(recipe(name), encoding="utf-8")
    paths = [str(SRC), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    environment |= {"HF_HOME": str(folder / "hf")}
    child = subprocess.run(
        [sys.executable, name], cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert child.returncode == 0, child.stderr


def same_vectors(actual: pa.Table, undisturbed: Path) -> None:
    """Rows by their id, since engines promise no order; the last has none, as null or as NaN."""
    actual, want = actual.sort_by("id"), read(undisturbed)
    assert actual["id"].to_pylist() == want["id"].to_pylist()
    got, right = np.stack(actual["embedding"].to_pylist()[:-1]), vectors(want.slice(0, len(want) - 1))
    cosines = (got * right).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(right, axis=1)
    assert cosines.min() > 0.99999
    last = actual["embedding"].to_pylist()[-1]
    assert last is None or np.isnan(last).all()
