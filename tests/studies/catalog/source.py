"""Get ExecuTorch's op catalog: its wheel can write one, which takes minutes, so a copy is kept.

The first of these that exists:

1. the folder that the environment variable WEBPTE_CATALOG names;
2. the cache, `${XDG_CACHE_HOME:-~/.cache}/webpte/catalog/<versions>`;
3. `../shared/catalog` beside the project, if its README names the versions that are installed;
4. a new one, generated into the cache.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.export.exporting import cache_root, one_at_a_time, versions

PROJECT = Path(__file__).parents[3]
MANIFEST = "manifest.json"


def catalog() -> Path:
    """Return the folder of the catalog for the installed versions; generated if there is none."""
    if named := os.environ.get("WEBPTE_CATALOG"):
        folder = Path(named)
        if not (folder / MANIFEST).is_file():
            raise FileNotFoundError(f"WEBPTE_CATALOG is {folder}, which has no {MANIFEST}")
        return folder
    cached = cache_root().parent / "catalog" / key()
    if cached.exists():
        return cached
    warm = PROJECT.parent / "shared" / "catalog"
    if is_same(warm):
        return warm
    with one_at_a_time("catalog"):
        if not cached.exists():  # another process may have made it while this one waited
            generate(cached)
    return cached


def installed() -> dict[str, str]:
    """Versions without the local part that names a build: 2.13.0+cpu is 2.13.0."""
    return {package: version.partition("+")[0] for package, version in versions().items() if version is not None}


def key() -> str:
    return "_".join(f"{package}-{version}" for package, version in sorted(installed().items()))


def is_same(folder: Path) -> bool:
    """Return whether a folder's README names every installed version."""
    readme = folder / "README.md"
    if not readme.is_file() or not (folder / MANIFEST).is_file() or len(installed()) < len(versions()):
        return False
    words = readme.read_text().replace(",", " ").replace("(", " ").replace(")", " ").split()
    pairs = set(itertools.pairwise(words))
    return all(pair in pairs for pair in installed().items())


def generate(folder: Path) -> None:
    """Run the wheel's generator, in a process of its own: this one stays free of torch."""
    if missing := [package for package, version in versions().items() if version is None]:
        raise ModuleNotFoundError(f"the op catalog needs {', '.join(missing)}: pip install 'webpte[export]'")
    print(f"generating the op catalog into {folder}: about ten minutes", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".catalog-", dir=folder.parent))
    try:
        subprocess.run([sys.executable, "-m", "tests.studies.catalog.generate", str(partial)], cwd=PROJECT, check=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
