"""The README and the documentation, as written: what needs torch runs here, the rest where only our wheel is installed.

tests/support/harness/pages.py tells which blocks run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.harness import pages
from tests.support.models import example_models, talker

ROOT = pages.ROOT
NEEDS_TORCH = re.compile(r"\bimport torch\b|\bwebpte\.export\b|\bwebpte export\b")


def first_program(folder: Path) -> None:
    shutil.copy(example_models.first_program() / "model.pte", folder)


def checkpoint(folder: Path) -> None:
    talker.write_checkpoint(folder / "SmolLM2-135M-Instruct")


# What a reader has at hand when a page begins.
AT_HAND = {
    "docs/dynamic-shapes.md": first_program,
    "docs/inspecting.md": first_program,
    "docs/llm.md": checkpoint,
    "docs/performance-guide.md": first_program,
    "docs/wrong-numbers.md": first_program,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    return out


@pytest.fixture(scope="module")
def fresh(tmp_path_factory, wheel):
    """Environment variables of a new virtual environment in which `pip install webpte` was all that was done."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    found = " ".join(filter(None, [str(wheel), os.environ.get("PIP_FIND_LINKS")]))
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    paths = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_FIND_LINKS": found}
    environment = inherited | paths | {"COLUMNS": "100"}
    run(["pip", "install", "-q", "webpte"], folder, environment)
    return environment


@pytest.fixture(scope="module")
def with_torch():
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": beside, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}


def run(command, cwd, env, timeout=240):
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", pages.runnable(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page, tmp_path, fresh, with_torch):
    at_hand = AT_HAND.get(page.relative_to(ROOT).as_posix())
    if at_hand is not None:
        at_hand(tmp_path)
    for step in pages.steps(page):
        environment = with_torch if NEEDS_TORCH.search(step.body) else fresh
        if step.language == "sh":
            printed = run(["sh", "-e", "-c", step.body], tmp_path, environment)
        else:
            (tmp_path / step.name).write_text(step.body)
            printed = run(["python", step.name], tmp_path, environment)
        if step.output is not None:
            shown = f"{page.name}:{step.line} shows\n{step.output}\nbut it printed\n{printed}"
            assert pages.agrees(printed, step.output), shown


def test_the_environment_that_pages_run_in_has_no_torch(fresh, tmp_path):
    assert run(["python", "-c", "import importlib.util as u; print(u.find_spec('torch'))"], tmp_path, fresh) == "None\n"
