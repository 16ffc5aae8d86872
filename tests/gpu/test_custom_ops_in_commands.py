"""Custom ops in commands: `--import`, and entry points of installed packages."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.support.harness.children import SRC
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.cli import main
from webpte.lowering import registered, unregister

PYTHON = """
import numpy as np
from webpte.lowering import FLOATS, Tensor
from webpte.ops.elementwise import Formula, elementwise


@elementwise("toy.{name}.default", dtypes=FLOATS)
def {name}(x: Tensor, *, out: Tensor) -> Formula:
    return Formula("{name}", (x,), code="3.0 * a")


@{name}.reference
def _(x):
    return np.float32(3) * x
"""
F32 = c.DType.FLOAT32


@pytest.fixture
def tripled(tmp_path, monkeypatch):
    """Yield a folder, the current one, with a program of an op that only a module beside it has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "toy_tripled"
    (tmp_path / f"{name}.py").write_text(PYTHON.format(name=name))
    values = [c.VkTensor(F32, (5, 3)) for _ in range(2)]
    simple_pte(tmp_path / "p.pte", values, [(f"toy.{name}.default", (0, 1))], [0], [1])
    yield tmp_path
    sys.modules.pop(name, None)
    if (op := registered().get(f"toy.{name}.default")) is not None:
        unregister(op)


@pytest.mark.parametrize("named", ["toy_tripled", "toy_tripled.py"])
def test_import_option_registers_ops(named, tripled, capsys):
    assert main(["check", "p.pte", "--limits", "browser"]) == 1
    assert main(["check", "p.pte", "--limits", "browser", "--import", named]) == 0
    np.save("x.npy", np.ones((5, 3), np.float32))
    for command in (["run", "p.pte", "--input", "x.npy"], ["compare", "p.pte"], ["inspect", "p.pte"]):
        capsys.readouterr()
        assert main([*command, "--json"]) == 0, capsys.readouterr()


@pytest.mark.parametrize("named", ["no_such_module", "none.py", "broken.py"])
def test_import_option_refuses_what_cannot_be_imported(named, tripled, capsys):
    (tripled / "broken.py").write_text("1 / 0")
    assert main(["check", "p.pte", "--import", named]) == 1
    assert f"--import: expected a module that can be imported, or its file, got {named}" in capsys.readouterr().err


def test_entry_points_register_ops_in_every_process(tripled):
    package = tripled / "toy-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[webpte.ops]\ntripled = toy_tripled\n")
    code = "from webpte.lowering import registered; print('toy.toy_tripled.default' in registered())"
    listed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tripled,
        env={"PYTHONPATH": f"{tripled}:{SRC}", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout == "True\n"
