"""What a bundle holds, and what of it a visitor loads: for people who host it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..runtime.manifest import MANIFEST, BundledFile, BundleVariant, Manifest, read_manifest

PathLike = str | os.PathLike[str]


def summary(folder: PathLike) -> dict[str, Any]:
    """Sizes in bytes. `visit` is what a page loads first, on a GPU that has all that was planned for: the page with its
    player and what plans and kernels take as a server packs them, and weights, which do not get smaller."""
    manifest = read_manifest(folder)
    root = Path(folder)
    paths = [path for path in root.rglob("*") if path.is_file()]
    listed = {root / file.path for file in manifest.files.values()}
    page = [path for path in paths if path not in listed and path.name != MANIFEST and "LICENSE" not in path.name]
    used = {file.sha256: file for file in _first_files(manifest)}.values()
    weights = [file for file in used if file.path.endswith(".bin")]
    texts = [root / file.path for file in used if file not in weights]
    return {
        "folder": str(root),
        "name": manifest.name,
        "kind": manifest.kind,
        "methods": {name: [str(variant) for variant in variants] for name, variants in manifest.methods.items()},
        "refused": list(manifest.data.get("refused", ())),
        "files": len(paths),
        "bytes": sum(path.stat().st_size for path in paths),
        "visit": {
            "page_gzip": _packed(page),
            "plan_gzip": _packed([root / MANIFEST, *texts]),
            "weights": sum(file.nbytes for file in weights),
        },
    }


def _packed(paths: Iterable[Path]) -> int:
    return sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in paths)


def _first_files(manifest: Manifest) -> list[BundledFile]:
    """Of the best variant of each method, and what the part of its kind names: tokenizers, labels, answers."""
    files = [file for variants in manifest.methods.values() for file in _variant_files(variants[0])]
    for part in (manifest.data.get(kind, {}) for kind in ("language", "encoder", "image")):
        files += [manifest.files[name] for name in part.values() if isinstance(name, str) and name in manifest.files]
    checks = manifest.data.get("check", ())
    names = {array["file"] for check in checks for array in (*check["inputs"], *check["outputs"])}
    return files + [manifest.files[name] for name in sorted(names)]


def _variant_files(variant: BundleVariant) -> list[BundledFile]:
    return [variant.plan, variant.wgsl, *variant.weights]
