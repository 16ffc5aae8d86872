"""The releases of ExecuTorch whose files are tried, and environments to export with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.export.exporting import cache_root

EXPORT = Path(__file__).with_name("export_programs.py")


class Release(NamedTuple):
    """A release, the torch it was made for, and the Pythons it has wheels for."""

    torch: str
    newest_python: tuple[int, int]
    packages: tuple[str, ...] = ()  # that it needs and does not require


RELEASES = {
    "0.7.0": Release("2.8.0", (3, 12), ("setuptools<81",)),  # imports pkg_resources
    "1.0.1": Release("2.9.1", (3, 12)),
    "1.1.0": Release("2.10.0", (3, 13)),
    "1.2.0": Release("2.11.0", (3, 13)),
    "1.3.1": Release("2.12.0", (3, 13)),
    "1.4.1": Release("2.13.0", (3, 14)),
    "1.5.1": Release("2.13.0", (3, 14)),
}
OLDEST_PYTHON = (3, 10)


def folder() -> Path:
    """Return the folder of the environments, unless the command sets one."""
    return cache_root().parent / "releases"


def interpreter(release: Release) -> str | None:
    """Return a Python that the release has wheels for: this one, or one on the path."""
    if OLDEST_PYTHON <= sys.version_info[:2] <= release.newest_python:
        return sys.executable
    minors = range(release.newest_python[1], OLDEST_PYTHON[1] - 1, -1)
    return next(filter(None, (shutil.which(f"python3.{minor}") for minor in minors)), None)


def environment(version: str, environments: Path) -> Path | None:
    """Return the environment of a release, made if it is not there; None without a Python for it."""
    release, home = RELEASES[version], environments / version
    if (home / "complete").exists():  # written last, so that half an install is never used
        return home
    python = interpreter(release)
    if python is None:
        return None
    subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # torch comes first and alone: asked for by name and version, pip may take a build for the CPU where one is offered.
    subprocess.run([*pip, f"torch=={release.torch}"], check=True)
    subprocess.run([*pip, f"torch=={release.torch}", f"executorch=={version}", *release.packages], check=True)
    (home / "complete").touch()
    return home


def export(home: Path, programs: Path) -> None:
    """Write the programs and their results with the ExecuTorch of an environment."""
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"  # the exporter starts flatc
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with (programs.parent / f"{programs.name}.log").open("w") as log:
        command = [str(home / "bin" / "python"), str(EXPORT), str(programs)]
        subprocess.run(command, env={**own, "PATH": path}, stdout=log, stderr=subprocess.STDOUT, check=True)
