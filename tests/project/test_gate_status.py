"""`.ci/run` says with its status what it says in its last line; every tool it calls is a stand-in here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
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
# Stands for the exporter, which runs beside the checks, and for the tests, which begin when it has begun or is gone.
EXPORTER_AND_TESTS = """#!/bin/sh
case "$*" in
  *exporting*) trap 'kill $!; echo ended >"$ENDED"; exit' TERM; sleep "$EXPORTS" & echo $$ >"$BEGUN"; wait $! ;;
  *) while [ ! -s "$BEGUN" ]; do sleep 0.05; done
     while [ "$EXPORTS" = 0 ] && kill -0 "$(cat "$BEGUN")"; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def gate(tmp_path):
    """A clone of which nothing but the script is real."""
    stand_ins, clone = tmp_path / "stand-ins", tmp_path / "clone"
    stand_ins.mkdir()
    (clone / "web" / "node_modules").mkdir(parents=True)
    (clone / ".ci").mkdir()
    for name in (".ci/run", "pyproject.toml", "web/package-lock.json"):
        shutil.copy(ROOT / name, clone / name)
    for name in ("ruff", "mypy", "npm", "pip", "chromium"):
        write(stand_ins / name, NOTHING)
    write(stand_ins / "dpkg-query", "#!/bin/sh\nprintf 'installed 99'\n")
    write(stand_ins / "dpkg", NOTHING)
    write(stand_ins / "python", EXPORTER_AND_TESTS)
    write(tmp_path / "python3", PYTHON)

    def run(exports=0):
        environ = {
            "PATH": f"{stand_ins}:/usr/bin:/bin",
            "PYTHON": str(tmp_path / "python3"),
            "STAND_INS": str(stand_ins),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "EXPORTS": str(exports),
            "BEGUN": str(tmp_path / "begun"),
            "ENDED": str(tmp_path / "ended"),
        }
        command = ["bash", str(clone / ".ci" / "run")]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)

    return run


def write(path, script):
    path.write_text(script)
    path.chmod(0o755)


def last_line(ended):
    return ended.stdout.splitlines()[-1]


def test_a_run_that_passed_says_so_after_its_exporter_is_gone(gate):
    ended = gate(exports=0)
    assert last_line(ended).startswith("all passed") and ended.returncode == 0, ended.stdout + ended.stderr


def test_a_run_ends_its_exporter(gate, tmp_path):
    ended = gate(exports=300)
    assert last_line(ended).startswith("all passed") and ended.returncode == 0, ended.stdout + ended.stderr
    until = time.monotonic() + 60
    while not (tmp_path / "ended").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (tmp_path / "ended").exists()


def test_a_check_that_fails_is_named_and_the_others_still_run(gate, tmp_path):
    write(tmp_path / "stand-ins" / "mypy", "#!/bin/sh\nexit 3\n")
    ended = gate()
    assert last_line(ended) == "failed: mypy" and ended.returncode == 1, ended.stdout + ended.stderr
    passed = [line.split()[0] for line in ended.stdout.splitlines() if line.endswith(" ok")]
    assert passed == ["ruff", "ruff", "tsc", "tests"]
