"""The nightly run: its parts name things that exist, cover every harness, and end with one line each."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from bench.compilers import build as compilers
from tests.studies.devices.runs import SUITES, suites
from tests.studies.nightly import __main__ as nightly
from tests.studies.nightly.parts import EXTRAS, FUZZED, LEFT_OUT, NETWORKS, PARTS, Part
from tests.studies.zoo.index import networks
from tests.support.harness.configurations import CONFIGURATIONS

ROOT = Path(__file__).parents[2]
COMMANDS = [(part.name, command) for part in PARTS for command in part.commands]
MODULES = sorted({command[2] for _, command in COMMANDS if command[:2] == ("python", "-m")})
VERSIONS = (ROOT / ".ci" / "versions").read_text()


def source(module: str) -> str:
    """Return the text of a module, or that of all files of a package."""
    path = ROOT / Path(*module.split("."))
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def test_networks_are_a_part_each():
    assert {one.network for one in networks().values()} == set(NETWORKS)


def test_part_names_are_unique():
    names = [part.name for part in PARTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("part", "command"), COMMANDS, ids=[" ".join(command) for _, command in COMMANDS])
def test_command_refers_to_what_exists(part, command):
    for word in command:
        if word.startswith(("tests/", ".ci/")):
            assert (ROOT / word).exists(), word
    if command[:2] == ("python", "-m"):
        module = command[2]
        path = ROOT / Path(*module.split("."))
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists(), module
        for option in (word for word in command[3:] if word.startswith("--")):
            assert f'"{option}"' in source(module), f"{module} has no option {option}"
    elif command[0] == "bash":
        assert command[1].startswith(".ci/")
    else:
        assert command[0] == "pytest"


@pytest.mark.slow
@pytest.mark.parametrize("module", [each for each in MODULES if each != "tests.studies.mutants"])  # takes words only
def test_command_has_a_help(module):
    if module == "tests.studies.fuzz" and importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install --group fuzz")
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nightly_covers_each_harness_or_states_reason():
    packages = {
        f"{path.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for path in (ROOT / "tests").glob("**/__main__.py")
        if path.parent.name not in ("studies", "tests")
    }
    soaks = {f"tests.studies.soak.{path.stem}" for path in (ROOT / "tests" / "studies" / "soak").glob("[a-z]*.py")}
    assert (packages | soaks) - set(MODULES) == set(LEFT_OUT)
    assert all(LEFT_OUT.values())


def test_nightly_covers_each_configuration():
    """`tests.studies.devices` runs all configurations unless some are named."""
    devices = [command for _, command in COMMANDS if "tests.studies.devices" in command]
    assert {command[command.index("--suites") + 1] for command in devices} == set(SUITES)
    assert not any("--configurations" in command for command in devices)
    assert "default=list(CONFIGURATIONS)" in source("tests.studies.devices")
    assert all(suites(name) for name in CONFIGURATIONS)


def test_nightly_covers_each_slow_test():
    """A slow test has the mark, or uses `slow` or `slow_but` of the harness, which set it."""
    paths = [word for _, command in COMMANDS if "slow" in command for word in command if word.startswith("tests/")]
    marked = re.compile(r"mark\.slow\b|^from tests\.support\.harness\.gate import", re.MULTILINE)
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")]
    slow = [name for name in files if marked.search((ROOT / name).read_text(encoding="utf-8"))]
    assert slow and not [name for name in slow if not any(name.startswith(f"{path}/") for path in paths)]


def test_nightly_names_each_fuzz_target():
    text = source("tests.studies.fuzz.targets")
    assert set(re.findall(r'^    "(\w+)": Target\(', text, re.MULTILINE)) == set(FUZZED)


def test_nightly_tests_extras_oldest_and_newest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"])
    for extra in EXTRAS:
        assert re.search(rf"^  {extra}\)", VERSIONS, re.MULTILINE), f".ci/versions does not know {extra}"
        for which in ("oldest", "newest"):
            assert any(command == ("bash", ".ci/versions", which, extra) for _, command in COMMANDS)


def test_versions_names_tests_that_exist():
    paths = re.findall(r"tests/[\w/.]*\w", VERSIONS)
    assert paths and not [
        path for path in paths if not (ROOT / path.rstrip("_")).exists() and path != "tests/unit/test_"
    ]


def test_workflow_runs_every_part_and_ends_after_its_limit():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]["part"]
    assert job["strategy"]["matrix"]["part"] == [part.name for part in PARTS]
    assert all(part.limit + 20 * 60 < 60 * job["timeout-minutes"] for part in PARTS)


def test_workflow_installs_what_the_compilers_are_built_with():
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]["part"]["steps"]
    installed = next(step["run"] for step in steps if "apt-get install" in step.get("run", "")).split()
    notes = re.findall(r"^apt-get install -t \S+ (.*)$|^and for adreno: (.*)$", compilers.__doc__ or "", re.MULTILINE)
    needed = {package for note in notes for package in " ".join(note).split()}
    assert {"meson", "libdrm-dev", "glslang-tools"} < needed
    assert {*needed, "libvulkan-dev", "libc6-dev", "npm", "debian-archive-keyring"} <= set(installed)


def python(code: str) -> tuple[str, ...]:
    return ("python", "-c", code)


STAND_INS = (
    Part("good", 60, (python("print('3 passed')"),)),
    Part("bad", 60, (python("print('1 failed'); raise SystemExit(3)"), python("print('went on')"))),
    Part("long", 2, (python("import time; time.sleep(600)"), python("print('never')"))),
)


def test_nightly_parts_pass_fail_and_time_out_in_one_line_each(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(nightly, "GRACE", 5)
    assert nightly.main(["--logs", str(tmp_path)], STAND_INS) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"logs: {tmp_path}" and len(lines) == 3
    assert re.fullmatch(r"nightly: good: passed in \d+ s: 3 passed", lines[0])
    assert re.fullmatch(r"nightly: bad: FAILED in \d+ s: status 3 of python .*: went on", lines[1])
    assert re.fullmatch(r"nightly: long: timed out in \d+ s: the limit is 2 s, in: python .*", lines[2])
    assert "1 failed" in (tmp_path / "bad.log").read_text() and "never" not in (tmp_path / "long.log").read_text()


def test_nightly_named_part_passes_with_status_0(tmp_path, capsys):
    assert nightly.main(["--logs", str(tmp_path), "good"], STAND_INS) == 0
    assert capsys.readouterr().out.count("nightly:") == 1


def test_nightly_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        nightly.main(["goood"], STAND_INS)
    assert "unknown parts: goood" in capsys.readouterr().err


def test_nightly_list_prints_every_part():
    listed = subprocess.run(["bash", ".ci/nightly", "--list"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = listed.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [part.name for part in PARTS]
    assert all(re.search(r" \d+ min  \S", line) for line in lines)
