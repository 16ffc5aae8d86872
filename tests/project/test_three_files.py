"""An op is a Python file and a .wgsl in its family's folder, and a cases file: nothing else names it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness.children import SRC

OPS = SRC / "webpte" / "ops"
LIB = SRC / "webpte" / "wgsl" / "lib"
WITHOUT_OPS = {"weight_formats"}  # what ops of several folders share
CASES = Path(__file__).parents[1] / "cases"
NAMED = re.compile(r"""["']([\w/]+\.wgsl)["']""")

PYTHON = '''
"""y = x + 1"""
from ...lowering.context import Context, Tensor
from ...lowering.registry import op


@op("toy.next.default")
def successor(cx: Context, x: Tensor, *, out: Tensor) -> None:
    out.dims = x.dims
    cx.dispatch("image/successor.wgsl", reads={"x": x}, writes={"y": out}, threads=x.numel, type=x.wgsl)


@successor.reference
def _(x):
    return x + 1
'''

LOOK = """
import json
from webpte.lowering import registered
from webpte.wgsl import Kernel, Uniforms, render
ops = registered()
found = ops.get("toy.next.default")
if found is not None:
    print(render(Kernel(found.home, "image/successor.wgsl", (), Uniforms.wgsl, 64, 0, 0)).strip())
print(json.dumps(sorted(ops)))
"""


def look(source: Path) -> list[str]:
    """Return the output of a process that imports a copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    child = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=120, env=environment)
    assert child.returncode == 0, child.stderr
    return child.stdout.splitlines()


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(SRC / "webpte", tmp_path / "webpte", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_op_added_and_removed_by_its_files(copied):
    family = copied / "webpte" / "ops" / "image"
    *_, before = look(copied)
    (family / "successor.py").write_text(PYTHON)
    (family / "successor.wgsl").write_text("// the next number\n")
    text, with_it = look(copied)
    assert text == "// the next number"
    assert with_it != before and '"toy.next.default"' in with_it
    (family / "successor.py").unlink()
    (family / "successor.wgsl").unlink()
    assert look(copied) == [before]


def test_op_removed_leaves_no_dangling_template(copied):
    """Without the files of one op all others are there, and no template is missing or left over."""
    family = copied / "webpte" / "ops" / "image"
    gone = [family / "grid.py", *family.glob("grid_*.wgsl")]
    assert len(gone) > 1
    (before,) = look(copied)
    for path in gone:
        path.unlink()
    (after,) = look(copied)
    lost = set(before.split(", ")) - set(after.split(", "))
    assert lost and all("grid" in name for name in lost)
    assert not dangling(family.parent, copied / "webpte" / "wgsl" / "lib")


def test_templates_are_all_used():
    assert not dangling(OPS, LIB)


def dangling(ops: Path, lib: Path) -> list[str]:
    """Templates that are named and not there, or there and not named."""
    texts = [path.read_text() for folder in (ops, lib) for path in folder.rglob("*") if path.suffix in (".py", ".wgsl")]
    texts += [path.read_text() for path in lib.parent.glob("*.py")]
    named = {name for text in texts for name in NAMED.findall(text)}
    there = {str(path.relative_to(folder)) for folder in (ops, lib) for path in folder.rglob("*.wgsl")}
    return sorted(named ^ there)


def test_cases_lie_as_their_ops_do():
    families = {path.name for path in OPS.iterdir() if (path / "__init__.py").exists()} - WITHOUT_OPS
    assert {path.name for path in CASES.iterdir() if (path / "__init__.py").exists()} == families
