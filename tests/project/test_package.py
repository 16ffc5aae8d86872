"""`pip install` installs one wheel for every platform, with all files of the package."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import webpte

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
OURS = re.compile(r"https://((?:github\.com|raw\.githubusercontent\.com)/webpte/webpte(?:/blob)?)/main/(.*)")


def files_under(folder: Path) -> set[str]:
    result = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(folder).as_posix() for p in result}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return built("sdist", tmp_path_factory.mktemp("sdist"))


def built(kind: str, folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)], cwd=ROOT, check=True)
    (path,) = folder.iterdir()
    return path


def test_wheel_has_all_files_for_all_platforms(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as z:
        packed = {name.removeprefix("webpte/") for name in z.namelist() if name.startswith("webpte/")}
    created = {f"web/player/{name}" for name in files_under(WEB / "player") if name != "make.mjs"}
    pages = {f"web/pages/{name}" for name in files_under(WEB / "pages")}
    assert packed == files_under(ROOT / "src" / "webpte") | created | pages | {"web/LICENSE"}
    assert {"py.typed", "web/player/index.js"} <= packed


def test_wheel_installed_bundles_same_as_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as z:
        z.extractall(tmp_path / "installed")
    written = []
    for name, path in (("checkout", ROOT / "src"), ("wheel", tmp_path / "installed")):
        command = [sys.executable, "-m", "webpte", "bundle", "--check", "-o", str(tmp_path / name)]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(path)}, check=True, cwd=tmp_path)
        written.append({file: (tmp_path / name / file).read_bytes() for file in files_under(tmp_path / name)})
    assert written[0] == written[1]
    assert {"index.html", "player/src/index.js", "player/LICENSE"} <= written[0].keys()


def test_wheel_and_archive_pass_twine_check(wheel, archive):
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel, archive], capture_output=True)
    assert done.returncode == 0, done.stdout.decode()
    assert done.stdout.count(b"PASSED") == 2


def test_links_of_the_description_lead_to_files_of_the_repository(wheel):
    """The README has relative ones; an index shows it without the files beside it."""
    with zipfile.ZipFile(wheel) as z:
        (name,) = [name for name in z.namelist() if name.endswith("/METADATA")]
        description = z.read(name).decode()
    targets = re.findall(r"\]\(([^)]+)\)", description)
    ours = [match for target in targets if (match := OURS.match(target))]
    assert len(ours) >= 20 and all(re.match(r"https?:|#", target) for target in targets)
    for match in ours:
        image = match[2].endswith(".png")
        assert match[1] == ("raw.githubusercontent.com/webpte/webpte" if image else "github.com/webpte/webpte/blob")
        assert (ROOT / match[2].partition("#")[0]).exists(), match[2]


@pytest.mark.slow
def test_archive_installs_same_files_as_wheel(wheel, archive, tmp_path):
    """The player and the pages among it, which lie beside the package there."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile"]
    for name, package in (("wheel", wheel), ("archive", archive)):
        subprocess.run([*pip, "--target", str(tmp_path / name), str(package)], check=True)
    assert files_under(tmp_path / "archive" / "webpte") == files_under(tmp_path / "wheel" / "webpte")
    reports = subprocess.run(
        [sys.executable, "-m", "webpte", "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "archive")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert reports.stdout.strip() == f"webpte {webpte.__version__}"


def test_npm_package_version_equals_python():
    for name in ("package.json", "package-lock.json"):
        assert json.loads((WEB / name).read_text(encoding="utf-8"))["version"] == webpte.__version__, name


def build_elsewhere(folder: Path, umask: int, time: float) -> dict[str, str]:
    """SHA-256 of wheel and source archive, built from a copy whose files have this age and permissions."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    for name in [*settings["include"], "pyproject.toml", ".gitignore"]:
        source, target = ROOT / name.strip("/"), folder / name.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            result = shutil.ignore_patterns("__pycache__", "node_modules", "types")
            shutil.copytree(source, target, ignore=result, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (time, time))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder / "out")]
    subprocess.run(build, cwd=folder, check=True, umask=umask)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "out").iterdir()}


@pytest.mark.slow
def test_built_twice_the_packages_are_the_same_bytes(tmp_path):
    """The one that builds a release can check that it was made of these sources."""
    first = build_elsewhere(tmp_path / "here", 0o022, 1_000_000_000)
    second = build_elsewhere(tmp_path / "some" / "where" / "else", 0o077, 1_700_000_000)
    assert len(first) == 2
    assert first == second
