"""mypy and pyright accept a correct typed program and report every error of a wrong one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness.children import SRC

TYPING = Path(__file__).parents[1] / "typing"
CONFIGURATION = """
[mypy]
strict = True
python_version = 3.11
follow_imports = silent

# What is installed without types, or takes minutes to follow: see pyproject.toml.
[mypy-torch.*,executorch.*,torchao.*,transformers.*,anywidget.*,traitlets.*,safetensors.*]
follow_imports = skip
ignore_missing_imports = True

[mypy-wgpu.*,cffi.*,gguf.*]
ignore_missing_imports = True
"""
SETTINGS = """
from webpte.llm import LLM, GenerateSettings

def ask(llm: LLM) -> None:
    llm.generate("a", temperature=0.5, stop=["x"], json_schema={"type": "object"}, seed=1)
    llm.sequence().generate("a", max_new_tokens=1, choices=("yes", "no"))
    llm.generate_many(["a", {"prompt": "b", "seed": 3}], top_k=3, in_order=False)
    LLM.load("model.pte", max_sequences=2, memory=10**9, tune="off")
    shared: GenerateSettings = {"temperature": 0.5}
    llm.generate("a", **shared)
"""
MISTYPED = """
from webpte.llm import LLM, GenerateSettings

def ask(llm: LLM) -> None:
    llm.generate("a", tempurature=0.5)
    llm.generate("a", temperature="hot")
    llm.generate("a", max_new_tokens=None)
    llm.sequence().generate("a", max_tokens=1)
    llm.generate_many(["a"], topk=3)
    LLM.load("model.pte", max_sequence=2)
    LLM.load("model.pte", tune="of")
    shared: GenerateSettings = {"temprature": 0.5}
"""
FILES = ("sample.py", "typos.py", "settings.py", "mistyped.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return the programs, where no configuration of this repository is found."""
    folder: Path = tmp_path_factory.mktemp("typing")
    for name in ("sample.py", "typos.py"):
        text = (TYPING / name).read_text(encoding="utf-8").replace("# mypy: ignore-errors\n", "\n")
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "settings.py").write_text(SETTINGS)
    (folder / "mistyped.py").write_text(MISTYPED)
    (folder / "mypy.ini").write_text(CONFIGURATION, encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(SRC)], "include": ["*.py"], "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def lines_by_mypy(folder: Path) -> dict[str, dict[int, str]]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "mypy-typing"
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(cache), *FILES]
    environment = os.environ | {"MYPYPATH": str(SRC)}
    child = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert child.returncode == 1, child.stdout + child.stderr  # the typos
    diagnostics: dict[str, dict[int, str]] = {name: {} for name in FILES}
    for name, line, message in re.findall(r"^(\w+\.py):(\d+): error: (.*)$", child.stdout, re.MULTILINE):
        diagnostics[name][int(line)] = message
    return diagnostics


def lines_by_pyright(folder: Path) -> dict[str, dict[int, str]]:
    """Return the lines with errors. Pyright's check for a newer version is switched off, so it needs no network."""
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", "."]
    child = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    diagnostics: dict[str, dict[int, str]] = {name: {} for name in FILES}
    report = json.loads(child.stdout)
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    for entry in report["generalDiagnostics"]:
        if entry["severity"] == "error":
            diagnostics[Path(entry["file"]).name][entry["range"]["start"]["line"] + 1] = entry["message"]
    return diagnostics


@pytest.fixture(scope="module", params=[lines_by_mypy, lines_by_pyright], ids=["mypy", "pyright"])
def diagnostics(request, folder) -> dict[str, dict[int, str]]:
    return request.param(folder)


def test_typing_sample_is_accepted(diagnostics):
    assert not diagnostics["sample.py"]


def test_typing_typos_are_all_reported(diagnostics):
    lines = (TYPING / "typos.py").read_text(encoding="utf-8").splitlines()
    planted = {number: line for number, line in enumerate(lines, 1) if re.search(r"# \d+: ", line)}
    assert len(planted) == 12
    missed = [line for number, line in planted.items() if number not in diagnostics["typos.py"]]
    assert not missed, f"{missed}, of what was found: {diagnostics['typos.py']}"


def test_typing_mistyped_settings_are_all_reported(diagnostics):
    assert not diagnostics["settings.py"]
    assert set(diagnostics["mistyped.py"]) == set(range(5, 13)), diagnostics["mistyped.py"]


def test_typing_sample_uses_public_names_only():
    """The sample also has no unused line."""
    text = (TYPING / "sample.py").read_text(encoding="utf-8")
    assert 50 <= len([line for line in text.splitlines() if line.strip()]) <= 90
    assert "Any" not in text.replace("is Any", "") and "ignore" not in text and "cast(" not in text
