"""Exported programs as data: one small zip file per folder of the cache, committed in `tests/exports`.

The name of a file is the cache key, which covers everything that makes the program: builder, parameters, exporter,
versions of torch, executorch, torchao and Python. If one of them changes, the program is exported again.
`tests/contract/test_fresh_exports.py` exports some programs in every run and compares them with these files.

Run `python -m tests.support.export.archive` after a run of the gate with an empty cache: it writes the exports that the
run used and removes the others.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[2] / "exports"
MAX_ZIP_BYTES = 300_000  # larger ones cost the repository more than a run saves


def restore(folder: Path) -> bool:
    """Unpack the archive of a cache folder, if there is one. The folder appears when all of it is there."""
    archive = ARCHIVE / f"{folder.name}.zip"
    if not archive.exists():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".restored-", dir=folder.parent))
    try:
        with zipfile.ZipFile(archive) as file:
            file.extractall(partial)
        if not folder.exists():
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def pack(folder: Path, archive: Path) -> None:
    """Write the files of a folder; the same files give the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, path.read_bytes(), compresslevel=9)


def folders(caches: list[Path]) -> dict[str, Path]:
    """Return the complete folders of the caches, by name."""
    return {
        folder.name: folder
        for cache in caches
        if cache.exists()
        for folder in sorted(cache.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    }


def write(caches: list[Path]) -> None:
    ARCHIVE.mkdir(exist_ok=True)
    used = folders(caches)
    for old in ARCHIVE.glob("*.zip"):
        if old.stem not in used:
            old.unlink()
            print(f"removed {old.name}")
    total = 0
    for name, folder in used.items():
        archive = ARCHIVE / f"{name}.zip"
        if not archive.exists():
            pack(folder, archive)
            if archive.stat().st_size > MAX_ZIP_BYTES:
                archive.unlink()
                continue
            print(f"added {archive.name}, {archive.stat().st_size} bytes")
        total += archive.stat().st_size
    print(f"{len(list(ARCHIVE.glob('*.zip')))} exports, {total} bytes")


if __name__ == "__main__":
    from tests.studies.random_modules.exporting import cache_root as random_modules_root

    from .exporting import cache_root

    write([cache_root(), random_modules_root() / "exports"])
