"""The catalog runner itself: where the catalog is found, and that a check can fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.studies.catalog import source
from tests.studies.catalog.checks import Check, Result, read_manifest
from tests.studies.catalog.run import as_json, table

VERSIONS = {"torch": "2.13.0+cpu", "executorch": "1.5.1", "torchao": "0.18.0"}
README = "Made with executorch 1.5.1 (torch 2.13.0, torchao 0.18.0).\n"


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Return a project and a cache that are empty, and a generator that only leaves its mark."""
    monkeypatch.delenv("WEBPTE_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "PROJECT", tmp_path / "project")
    monkeypatch.setattr(source, "versions", lambda: VERSIONS)
    monkeypatch.setattr(source, "generate", lambda folder: write(folder, "generated"))
    return tmp_path


def write(folder: Path, readme: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("[]")
    (folder / "README.md").write_text(readme)
    return folder


def test_catalog_source_named_folder_comes_first(nowhere, monkeypatch):
    named = write(nowhere / "named", "")
    write(nowhere / "shared/catalog", README)
    monkeypatch.setenv("WEBPTE_CATALOG", str(named))
    assert source.catalog() == named
    monkeypatch.setenv("WEBPTE_CATALOG", str(nowhere))
    with pytest.raises(FileNotFoundError, match="WEBPTE_CATALOG"):
        source.catalog()


def test_catalog_source_shared_copy_is_used(nowhere):
    warm = write(nowhere / "shared/catalog", README)
    assert source.catalog() == warm


@pytest.mark.parametrize("readme", ["", README.replace("1.5.1", "1.5.10"), README.replace("0.18.0", "0.17.0")])
def test_catalog_source_copy_of_other_versions_is_ignored(nowhere, readme):
    write(nowhere / "shared/catalog", readme)
    folder = source.catalog()
    assert folder == nowhere / "cache/webpte/catalog/executorch-1.5.1_torch-2.13.0_torchao-0.18.0"
    assert (folder / "README.md").read_text() == "generated"


def test_catalog_source_cache_is_reused(nowhere, monkeypatch):
    path = source.catalog()
    monkeypatch.setattr(source, "generate", lambda folder: pytest.fail("generated again"))
    assert source.catalog() == path


def test_catalog_source_failing_generator_leaves_nothing(nowhere, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(source, "versions", lambda: VERSIONS)
    monkeypatch.setattr("tests.studies.catalog.source.subprocess.run", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        source.generate(nowhere / "cache/catalog/key")
    assert list((nowhere / "cache/catalog").iterdir()) == []


@pytest.fixture
def check(tmp_path) -> Check:
    golden = {"path": "golden.bin", "shape": [3], "dtype": "float32", "output_index": 1}
    entry = {"op": "abs", "case": "three", "pte": "a.pte", "inputs": [], "golden": golden, "atol": 1e-3, "rtol": 1e-2}
    np.array([1, 100, -5], "<f4").tofile(tmp_path / "golden.bin")
    (tmp_path / "manifest.json").write_text(json.dumps([entry]))
    (only,) = read_manifest(tmp_path)
    return only


@pytest.mark.parametrize(
    "output",
    [[1, 100, -5], [1.0009, 100.9, -5.04]],  # each within one of the two tolerances
)
def test_close_enough(check, output):
    check.compare([None, np.array(output, np.float32)])


@pytest.mark.parametrize(
    "output",
    [[1, 100, 5], [1.02, 100, -5], [1, 102, -5], [np.nan, 100, -5], [1, np.inf, -5], [1, 100], [[1, 100, -5]]],
)
def test_catalog_check_inaccurate_output_fails(check, output):
    with pytest.raises(AssertionError):
        check.compare([None, np.array(output, np.float32)])


def test_catalog_check_expected_nan_fails(check):
    np.array([np.nan, 100, -5], "<f4").tofile(check.program.parent / "golden.bin")
    with pytest.raises(AssertionError):
        check.compare([None, np.array([np.nan, 100, -5], np.float32)])


def test_catalog_check_wrong_dtype_fails(check):
    with pytest.raises(AssertionError, match="dtype"):
        check.compare([None, np.array([1, 100, -5], np.float64)])


def test_catalog_report_table_and_json(check):
    results = [Result(check, "passed"), Result(check, "failed", "off by\none"), Result(check, "refused", "no abs")]
    assert table(results).splitlines() == [
        "suite  passed  failed  refused",
        "abs         1       1        1",
        "    three: off by one",
        "    refused: no abs",
        "total       1       1        1",
    ]
    assert [row["outcome"] for row in json.loads(as_json(results))] == ["passed", "failed", "refused"]
