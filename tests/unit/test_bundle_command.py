"""Files and output of `webpte bundle`, and what remains of unfinished bundles."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte.bundles import site as bundle_site
from webpte.cli import main
from webpte.cli.bundle import shapes_from
from webpte.container import DType, VkInt, VkSymInt, VkTensor


@pytest.fixture
def program(tmp_path):
    row = VkTensor(DType.FLOAT32, (5, 7))
    values = [row, VkTensor(DType.FLOAT32, (5, 7), constant_id=0), VkInt(1), row]
    table = np.arange(35, dtype=np.float32).reshape(5, 7)
    simple_pte(tmp_path / "add.pte", values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [table])
    return tmp_path / "add.pte"


def test_bundle_command_reports_files_and_how_to_view(program, capsys):
    folder = program.with_name("site")
    assert main(["bundle", str(program), "-o", str(folder), "--name", "sums"]) == 0
    text = capsys.readouterr().out
    assert "program, " in text and "forward: gpu; cpu" in text and f"python -m http.server -d {folder}" in text
    with webpte.load(folder) as result:
        assert result.method_names == ("forward",)
    assert main(["inspect", str(folder)]) == 0 and capsys.readouterr().out == text
    assert main(["bundle", str(program), "-o", str(folder), "--json"]) == 0  # in the place of the other
    report = json.loads(capsys.readouterr().out)
    assert (report["name"], report["kind"], report["methods"]) == ("add", "program", {"forward": ["gpu", "cpu"]})
    assert report["bytes"] == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert report["visit"]["weights"] == 140 and 1000 < report["visit"]["plan_gzip"] < report["bytes"]
    assert sorted(path.name for path in program.parent.iterdir()) == ["add.pte", "site"]


def test_bundle_command_other_folder_not_overwritten(program, capsys):
    assert main(["bundle", str(program), "-o", str(program.parent)]) == 1
    assert "or a bundle to replace" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["add", "_write", "finish"])
def test_bundle_interrupted_leaves_old_folder(program, monkeypatch, moment):
    folder = program.with_name("site")
    with webpte.load(program) as loaded:
        webpte.bundle(loaded, folder)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(bundle_site.Site, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            webpte.bundle(loaded, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in program.parent.iterdir()) == ["add.pte", "site"]


def test_bundle_interrupted_during_swap_restores_old_folder(program, monkeypatch):
    folder = program.with_name("site")
    with webpte.load(program) as loaded:
        webpte.bundle(loaded, folder)
        replace, moved = os.replace, []

        def second_is_interrupted(source, target):
            moved.append(target)
            if len(moved) == 2:
                raise KeyboardInterrupt
            replace(source, target)

        monkeypatch.setattr(os, "replace", second_is_interrupted)
        with pytest.raises(KeyboardInterrupt):
            webpte.bundle(loaded, folder)
    assert (folder / "manifest.json").exists()
    assert sorted(path.name for path in program.parent.iterdir()) == ["add.pte", "site"]


def test_bundle_data_dependent_size_is_refused(tmp_path):
    """The first rows of a table, as many as an input says."""
    table = VkTensor(DType.FLOAT32, (5, 3), constant_id=0)
    values = [VkTensor(DType.INT32, (1,)), table, VkInt(0), VkSymInt(5), VkTensor(DType.FLOAT32, (5, 3)), VkInt(1)]
    calls = [("et_vk.select_as_symint.default", (0, 2, 2, 3)), ("aten.slice_copy.Tensor", (1, 2, 2, 3, 5, 4))]
    simple_pte(tmp_path / "rows.pte", values, calls, [0], [4], [np.ones((5, 3), np.float32)])
    with (
        webpte.load(tmp_path / "rows.pte") as program,
        raises(webpte.UnsupportedError, "%0[0]", "input 0 is %0.", code="data_dependent"),
    ):
        webpte.bundle(program, tmp_path / "site")


def test_calls_are_named_by_dims():
    result = shapes_from(["1x3x224x224", "1x3x64x64", "encode:1x16,-,1x16"])
    assert result == {"forward": [[(1, 3, 224, 224)], [(1, 3, 64, 64)]], "encode": [[(1, 16), (), (1, 16)]]}
    for wrong in ("1x", "axb", "", "1,,2"):
        with raises(webpte.InputError, repr(wrong), "1x3x224x224", code="invalid_shape"):
            shapes_from([wrong])
