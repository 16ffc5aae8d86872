"""The README's commands, as written: export where torch is, run in a fresh environment that has only our wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [body for kind, body in FENCE.findall((ROOT / "README.md").read_text()) if kind == language]


def python_block(name):
    (body,) = [body for body in blocks("python") if body.startswith(f"# {name}\n")]
    return body


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    return out


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, wheel):
    """Environment variables of a new virtual environment; pip finds our wheel there."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    found = " ".join(filter(None, [str(wheel), os.environ.get("PIP_FIND_LINKS")]))
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    return inherited | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_FIND_LINKS": found}


def run(command, cwd, env, timeout=240):
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_python_block_is_tested_here():
    assert [body.split("\n")[0] for body in blocks("python")] == ["# export.py", "# run.py", "# executorch_style.py"]
    assert len(blocks("sh")) == 1


def test_readme(tmp_path, fresh):
    run([sys.executable, "-c", python_block("export.py")], tmp_path, dict(os.environ))
    for line in blocks("sh")[0].strip().splitlines():
        output = run(["sh", "-c", line], tmp_path, fresh)
    assert "f32[<=64, 16]" in output and "aten.linear.default" in output
    assert run(["python", "-c", "import importlib.util as u; print(u.find_spec('torch'))"], tmp_path, fresh) == "None\n"
    assert run(["python", "-c", python_block("run.py")], tmp_path, fresh) == "(64, 4) float32\n(3, 4) float32\n"
    assert run(["python", "-c", python_block("executorch_style.py")], tmp_path, fresh) == "(8, 4)\n"
