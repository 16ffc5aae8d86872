"""Bundles of programs with answers: what is in them, and which catalogs are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte.bundles import bundle_checks
from webpte.cli import main
from webpte.container import DType, VkInt, VkTensor
from webpte.debug.compare.bundle import bundled_array
from webpte.runtime import Bundle

F32 = DType.FLOAT32


def write_catalog(folder, ops=("aten.add.Tensor",)):
    """Return a program of each op, its two inputs, and what NumPy makes of the first."""
    folder.mkdir()
    entries = []
    for op in ops:
        name = op.split(".")[1]
        x, y = (np.arange(35, dtype=np.float32).reshape(5, 7) * k for k in (1, 2))
        row = VkTensor(F32, (5, 7))
        simple_pte(folder / f"{name}.pte", [row, row, VkInt(1), row], [(op, (0, 1, 2, 3))], [0, 1], [3])
        for suffix, array in (("in0", x), ("in1", y), ("golden", x + y)):
            array.tofile(folder / f"{name}.{suffix}.bin")
        arrays = [{"path": f"{name}.{s}.bin", "shape": [5, 7], "dtype": "float32"} for s in ("in0", "in1", "golden")]
        golden = {**arrays[2], "output_index": 0}
        about = {"op": name, "case": "rows", "pte": f"{name}.pte", "inputs": arrays[:2], "golden": golden}
        entries.append({**about, "atol": 1e-4, "rtol": 1e-3})
    (folder / "manifest.json").write_text(json.dumps(entries))
    return folder


def manifest_of(site):
    return json.loads((site / "manifest.json").read_text())


def test_bundle_checks_include_catalog_with_results(tmp_path):
    site = bundle_checks(tmp_path / "site", write_catalog(tmp_path / "ops"))
    manifest = manifest_of(site)
    (check,) = manifest["check"]
    assert (manifest["kind"], manifest["omitted"]) == ("check", [])
    assert (check["op"], check["name"], check["method"]) == ("add", "rows", "add/rows")
    assert (check["atol"], check["rtol"]) == (1e-4, 1e-3) and "add/rows" in manifest["methods"]
    with webpte.load(site) as bundle:
        assert isinstance(bundle, Bundle)
        x, y, golden = (bundled_array(bundle, entry) for entry in (*check["inputs"], *check["outputs"]))
    assert golden.dtype == np.float32 and (golden == x + y).all() and golden[4, 6] == 102


def test_bundle_checks_unsupported_program_is_left_out_and_named(tmp_path, capsys):
    folder = write_catalog(tmp_path / "ops", ("aten.add.Tensor", "aten.frobnicate.default"))
    assert main(["bundle", str(folder), "--check", "-o", str(tmp_path / "site")]) == 0
    assert "not included: frobnicate/rows: " in capsys.readouterr().out
    manifest = manifest_of(tmp_path / "site")
    assert [check["op"] for check in manifest["check"]] == ["add"]
    assert [omitted["op"] for omitted in manifest["omitted"]] == ["frobnicate"]
    assert "aten.frobnicate.default" in manifest["omitted"][0]["reason"]


def test_bundle_checks_default_has_built_in_programs(tmp_path, capsys):
    assert main(["bundle", "--check", "-o", str(tmp_path / "site"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "check" and len(report["methods"]) == len(manifest_of(tmp_path / "site")["check"]) == 3
    assert report["visit"]["weights"] > 10_000  # what they are given, and what must come out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--check"], "is not a catalog of ops"),
        (["--check", "--labels", "x"], "--labels"),
        ([], "expected a .pte program"),
    ],
)
def test_bundle_checks_contradictory_options_are_refused(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", *arguments, "-o", "site"]) == 1
    assert said in capsys.readouterr().err and not any(tmp_path.iterdir())


def golden(shape=(5, 7), dtype="float32", index=0):
    return {"golden": {"path": "add.golden.bin", "shape": shape, "dtype": dtype, "output_index": index}}


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        ({"pte": "../add.pte"}, "file_name", ["'../add.pte'"]),
        ({"pte": 3}, "file_name", [3]),
        (golden(shape=(5, 8)), "invalid_array", ["add.golden.bin", "float32 [5, 8]"]),
        (golden(dtype="text"), "invalid_array", ["add.golden.bin", "text [5, 7]"]),
        (golden(index=1), "missing_outputs", ["got [1]"]),
    ],
)
def test_bundle_checks_invalid_catalog_is_refused(tmp_path, change, code, expected):
    folder = write_catalog(tmp_path / "ops")
    entries = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps([{**entries[0], **change}]))
    with raises(webpte.FormatError, *expected, code=code):
        bundle_checks(tmp_path / "site", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["ops"]
