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


def _sizes(kind: str) -> dict[str, int]:
    """Return the gzipped bytes of each file of a page and of what it may load of the player."""
    player, page = dict(player_files()), dict(page_files(kind))
    files = page | {name: player[name] for name in _loaded(player, kind)}
    return {name: len(gzip.compress(data, 9, mtime=0)) for name, data in files.items()}


@pytest.mark.parametrize("kind", ["language", "encoder", "image", "program", "check", "bench"])
def test_player_and_pages_are_small(kind):
    sizes = _sizes(kind)
    assert sum(sizes.values()) <= MAX_PLAYER_BYTES, sizes


@pytest.mark.parametrize(
    ("document", "words", "part"),
    [
        ("README.md", r"([\d.]+) kB of page and player", ""),
        ("docs/how-it-works.md", r"([\d.]+) kB of page and player", ""),
        ("docs/player.md", r"([\d.]+) kB of plain JavaScript", "player/"),
    ],
)
def test_documents_name_the_size_of_player_and_page(document, words, part):
    stated = re.search(words, (WEB.parent / document).read_text(encoding="utf-8"))
    size = sum(size for name, size in _sizes("language").items() if name.startswith(part))
    assert stated is not None
    assert float(stated[1]) == pytest.approx(size / 1000, rel=0.05)
