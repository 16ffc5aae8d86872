"""The exit status of `.ci/run` agrees with its last line; every tool that it calls is a stand-in here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTHING = "#!/bin/sh\nexit 0\n"
# Installs stand-ins instead of an environment; the rest of what it is asked is a question about the requirements.
PYTHON = f"""#!/bin/sh
case "$*" in
  "-m venv"*) mkdir -p "$4/bin" && cp "$STAND_INS"/* "$4/bin" ;;
  *) exec {sys.executable} "$@" ;;
esac
"""


ENDLESS = """#!/bin/sh
trap 'echo summed up; exit 2' INT
while :; do sleep 0.1; done
"""


@pytest.fixture
def gate(tmp_path):
    """Return a clone of which nothing but the script is real."""
    stand_ins, clone = tmp_path / "stand-ins", tmp_path / "clone"
    stand_ins.mkdir()
    (clone / "web" / "node_modules").mkdir(parents=True)
    (clone / ".ci").mkdir()
    for name in (".ci/run", ".ci/constraints.txt", "pyproject.toml", "web/package-lock.json"):
        shutil.copy(ROOT / name, clone / name)
    for name in ("ruff", "mypy", "npm", "pip", "python", "chromium", "pytest"):
        write(stand_ins / name, NOTHING)
    write(stand_ins / "dpkg-query", "#!/bin/sh\nprintf 'installed 99'\n")
    write(stand_ins / "dpkg", NOTHING)
    write(tmp_path / "python3", PYTHON)

    def run():
        environ = {
            "PATH": f"{stand_ins}:/usr/bin:/bin",
            "PYTHON": str(tmp_path / "python3"),
            "STAND_INS": str(stand_ins),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        command = ["bash", str(clone / ".ci" / "run")]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)

    return run


def write(path, script):
    path.write_text(script)
    path.chmod(0o755)


def last_line(ended):
    return ended.stdout.splitlines()[-1]


def test_gate_success_says_all_passed(gate):
    ended = gate()
    assert last_line(ended).startswith("all passed") and ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(("tool", "check"), [("mypy", "static"), ("ruff", "static"), ("npm", "static")])
def test_gate_failing_check_is_named_and_others_run(gate, tmp_path, tool, check):
    write(tmp_path / "stand-ins" / tool, '#!/bin/sh\n[ "$3" = ci ] || exit 3\n')
    ended = gate()
    assert last_line(ended) == f"failed: {check}" and ended.returncode == 1, ended.stdout + ended.stderr
    passed = [line.split()[0] for line in ended.stdout.splitlines() if line.endswith(" ok")]
    assert passed == ["tests", "swiftshader", "browser"]


@pytest.mark.slow
def test_tests_that_do_not_end_are_interrupted_and_named(gate, tmp_path):
    """A run that is ended from outside would print nothing."""
    script = tmp_path / "clone" / ".ci" / "run"
    script.write_text(script.read_text().replace("limit=4800", "limit=SECONDS+3"))
    write(tmp_path / "stand-ins" / "pytest", ENDLESS)
    ended = gate()
    assert "summed up" in ended.stdout and ended.returncode == 1
    assert last_line(ended) == "failed: tests,swiftshader,browser limits"
