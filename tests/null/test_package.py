"""What `pip install` brings: one wheel for every platform, with all files of the package in it."""

from __future__ import annotations

import subprocess
import sys
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
