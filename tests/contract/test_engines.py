"""The recipes of the page for Spark, Daft and Hugging Face datasets, where these are installed."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest

from tests.support.harness.recipes import page_folder, run_recipe, same_vectors
from webpte.batch import run

ROWS = 300


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("package", "result"),
    [("pyspark", "vectors_by_spark"), ("daft", "vectors_by_daft"), ("datasets", "vectors_by_datasets.parquet")],
)
def test_engine_recipe_equals_batch_command(package, result, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed")
    if package == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    folder = page_folder(tmp_path, ROWS)
    run(folder / "minilm.pte", folder / "tickets.parquet", folder / "alone")
    run_recipe(f"with_{package.removeprefix('py')}.py", folder)
    same_vectors(pq.read_table(folder / result), folder / "alone")
