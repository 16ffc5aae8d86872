"""What `pip install` brings: one wheel for every platform, with all files of the package in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_every_file_and_fits_every_platform(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")

    with zipfile.ZipFile(wheel) as z:
        packed = {name for name in z.namelist() if name.startswith("webpte/")}
    sources = (p for p in (ROOT / "src" / "webpte").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    assert packed == {p.relative_to(ROOT / "src").as_posix() for p in sources}
    assert "webpte/py.typed" in packed


def build_elsewhere(folder: Path, umask: int, time: float) -> dict[str, str]:
    """SHA-256 of wheel and source archive, built from a copy whose files have this age and permissions."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    for name in [*settings["include"], "pyproject.toml", ".gitignore"]:
        source, target = ROOT / name.strip("/"), folder / name.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (time, time))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder / "out")]
    subprocess.run(build, cwd=folder, check=True, umask=umask)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "out").iterdir()}


def test_built_twice_the_packages_are_the_same_bytes(tmp_path):
    """Whoever builds a release can check that it was made of these sources."""
    first = build_elsewhere(tmp_path / "here", 0o022, 1_000_000_000)
    second = build_elsewhere(tmp_path / "some" / "where" / "else", 0o077, 1_700_000_000)
    assert len(first) == 2
    assert first == second
