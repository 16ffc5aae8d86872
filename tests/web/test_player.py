"""The player as bundles carry it: made again of its sources, without packages of others, and small."""

from __future__ import annotations

import gzip
import json
import re
import subprocess

import pytest

from webpte.bundles.site import player_files
from webpte.web_files import page_files

from .conftest import WEB

MAX_PLAYER_BYTES = 90_000  # bytes of the player, all that it loads on demand and a page, gzipped file by file


def test_installed_packages_are_those_that_the_lockfile_pins(node_modules):
    locked = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for name, package in locked.items():
        if name and not package.get("optional"):  # optional ones are builds for other platforms
            installed = json.loads((WEB / name / "package.json").read_text(encoding="utf-8"))
            assert installed["version"] == package["version"], f"{name} is not what is locked: run `npm ci` in web/"
            assert package["dev"], f"{name}: the player is to need no package of others"


def test_player_build_is_up_to_date(node_modules):
    done = subprocess.run(
        ["npm", "run", "--silent", "check-build"], cwd=WEB, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert {"player/src/index.js", "player/src/worker.js", "player/LICENSE"} <= dict(player_files()).keys()


def _loaded(files: dict[str, bytes], kind: str) -> set[str]:
    """Return the parts of the player that a page of a kind may load: only those of text load more on demand."""
    imports = (
        r'(?:from|import|import\()"\./([^"]+)"' if kind in ("language", "encoder") else r'(?:from|import)"\./([^"]+)"'
    )
    result, new = set[str](), {"index.js", "worker.js"}
    while new:
        result |= new
        texts = (files[f"player/src/{name}"].decode() for name in new)
        new = {name for text in texts for name in re.findall(imports, text)} - result
    return {f"player/src/{name}" for name in result}


@pytest.mark.parametrize("kind", ["language", "encoder", "image", "program", "check", "bench"])
def test_player_and_pages_are_small(kind):
    player, page = dict(player_files()), dict(page_files(kind))
    files = page | {name: player[name] for name in _loaded(player, kind)}
    sizes = {name: len(gzip.compress(data, 9, mtime=0)) for name, data in files.items()}
    assert sum(sizes.values()) <= MAX_PLAYER_BYTES, sizes
