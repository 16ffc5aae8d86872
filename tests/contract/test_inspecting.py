"""`webpte inspect` over real exports: text, JSON and page agree, nothing is cut; and over what was made for others."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.export.foreign import xnnpack_program
from tests.support.harness.errors import raises
from tests.support.harness.inspected import check_same
from tests.support.harness.reports import reported
from tests.support.harness.screens import check_widths, record
from webpte.cli import main

NAMES = (
    "add",
    "mixed_kernels",
    "two_methods",
    "dynamic_broadcast",
    "integers",
    "doubles",
    "half",
    "branch",
    "llama_4w_emb4",
)


@pytest.mark.parametrize("name", NAMES)
def test_inspect_outputs_agree_and_nothing_is_cut(name, tmp_path, capsys):
    path = export(name).path
    assert check_same(path, tmp_path, capsys) >= 1
    reported(capsys, "inspect", path)
    reported(capsys, "check", path)
    check_widths(record("inspect", path))
    check_widths(record("check", path))


@pytest.mark.parametrize("value", [True, False])
def test_constants_in_a_file_of_their_own(value, tmp_path, capsys):
    exported = export("add_external")
    options = [part for data in exported.data for part in ("--data", str(data))] if value else []
    assert check_same(exported.path, tmp_path, capsys, *options) == 1
    check_widths(record("inspect", exported.path, *options))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    path = tmp_path_factory.mktemp("foreign") / "program.pte"
    path.write_bytes(xnnpack_program().read_bytes().replace(b"XnnpackBackend", b"ForeignBackend"))
    return path


def test_xnnpack_delegates_are_shown_and_run(tmp_path, capsys):
    assert check_same(xnnpack_program(), tmp_path, capsys) == 1
    (method,) = reported(capsys, "inspect", xnnpack_program())["methods"]
    (delegate,) = method["delegates"]
    assert (delegate["backend"], delegate["calls"], delegate["known"]) == ("XnnpackBackend", 2, True)
    assert main(["check", str(xnnpack_program())]) == 0
    with webpte.load(xnnpack_program()) as program:
        assert program.method("forward")(np.ones((3, 16), np.float32)).shape == (3, 4)


def test_delegates_of_another_backend_are_shown(foreign, tmp_path, capsys):
    assert check_same(foreign, tmp_path, capsys) == 1
    check_widths(record("inspect", foreign))
    (method,) = reported(capsys, "inspect", foreign)["methods"]
    (delegate,) = method["delegates"]
    assert delegate["backend"] == "ForeignBackend" and delegate["bytes"] > 100
    assert (delegate["takes"], delegate["gives"]) == (["f32[3, 16]"], ["f32[3, 4]"])
    assert method["kernel_calls"] == {"aten::cumsum.out": 1} and "VulkanPartitioner" in method["problem"]


@pytest.mark.parametrize("command", ["run", "bench", "tune", "compare", "profile", "check"])
def test_command_foreign_delegate_states_how_to_export(command, foreign, capsys):
    assert main([command, str(foreign)]) == 1
    shown = capsys.readouterr()
    assert "webpte.export.lower(model, inputs" in shown.out + shown.err
    with raises(webpte.UnsupportedError, "ForeignBackend", "VulkanPartitioner"):
        webpte.load(foreign)
