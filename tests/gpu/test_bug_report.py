"""`webpte doctor --bug-report`: everything a maintainer needs, without weights, user names and home folders."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from tests.support.harness.reports import check_report
from tests.support.harness.writer import simple_pte
from webpte.cli import main
from webpte.container import DType, VkInt, VkTensor

MARKER = "zaphod"
F32 = DType.FLOAT32


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / MARKER
    (folder / "work").mkdir(parents=True)
    monkeypatch.chdir(folder / "work")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USER", MARKER)
    monkeypatch.setenv("WEBPTE_TEST", f"{folder}/x by {MARKER}")
    return folder


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_bug_report_has_the_reports_of_a_program_and_no_weights(home, capsys):
    values = [VkTensor(F32, (7,)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (7,))]
    weight = np.frombuffer(b"secret weights of the model.", np.float32)
    simple_pte(home / "p.pte", values, [("aten.add.Tensor", (0, 1, 2, 3))], [0], [3], [weight])
    assert main(["doctor", "--bug-report", str(home / "p.pte"), "-o", "bug.zip"]) == 0
    files = contents(home / "work" / "bug.zip")
    assert "bug.zip" in capsys.readouterr().err
    assert MARKER not in "".join(files.values()) and "secret" not in "".join(files.values())
    for name in ("doctor", "inspect", "check"):
        check_report(name, json.loads(files[f"{name}.json"]))
    assert json.loads(files["inspect.json"])["file"].endswith("p.pte")
    assert json.loads(files["environment.json"])["WEBPTE_TEST"] == "~/x by USER"
    assert "the process ended with 0" in files["selftest.log"] and " ms webpte" in files["selftest.log"]
    assert "self-test: ok" in files["doctor.txt"]


def test_bug_report_of_a_broken_program_has_the_error(home):
    (home / "bad.pte").write_bytes(b"not a program")
    assert main(["doctor", "--no-test", "--bug-report", str(home / "bad.pte")]) == 0
    files = contents(home / "work" / "webpte-bug-report.zip")
    error = json.loads(files["inspect.json"])["error"]
    assert error["code"].startswith("format.") and MARKER not in "".join(files.values())
    assert "selftest.log" not in files


@pytest.mark.parametrize("line", [["p.pte"], ["-o", "x.zip"], ["--bug-report", "-o", "x.txt"], ["--bug-report", "no"]])
def test_arguments_that_do_not_go_together_are_refused(line, home, capsys):
    assert main(["doctor", "--no-test", *line]) == 1
    assert capsys.readouterr().err.startswith("InputError")
