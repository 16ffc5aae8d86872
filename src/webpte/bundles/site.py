"""The folder of a bundle: files named by the hash of their contents, the manifest, the player and the page."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ..errors import InputError
from ..partial_files import not_writable, partial_path
from ..runtime.manifest import FORMAT, MANIFEST, VERSION, BundledFile, BundleVariant, Manifest, file_path, read_manifest
from ..typing import PathLike
from ..version import __version__
from ..web_files import page_files, web_folder


class Site:
    """A bundle while it is written: beside its place, and moved there when it is whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.files: dict[str, dict[str, Any]] = {}
        if self.path.exists() and not (self.path.is_dir() and _is_bundle_or_empty(self.path)):
            raise InputError(
                f"path: expected a new or empty folder, or a bundle to replace, got {self.path}", code="not_a_bundle"
            )
        self._part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._partial = contextlib.ExitStack()
        self._partial.enter_context(partial_path(self._part))
        self._folder("files")

    def _folder(self, name: str) -> Path:
        folder = self._part / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_writable(self.path, error) from error
        return folder

    def add(self, data: bytes, kind: str) -> str:
        """Write a file and return its hash, by which the manifest and plans name it."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.files:
            path = file_path(digest, kind)
            self.files[digest] = {"bytes": len(data), "type": kind, "path": path}
            self._write(path, data)
        return digest

    def add_json(self, document: Any, kind: str = "json") -> str:
        return self.add(compact(document).encode(), kind)

    def finish(self, kind: str, manifest: Mapping[str, Any], page: str | None = None) -> None:
        """Add the player and the page of a kind, write the manifest, and take the place of what was there.

        `page` names another page than that of the kind.
        """
        for name, data in (*player_files(), *page_files(page or kind)):
            self._write(name, data)
        head = {"format": FORMAT, "version": VERSION, "webpte": __version__, "kind": kind, **manifest}
        rest = compact({**head, "files": self.files})[1:].encode()
        self._write(MANIFEST, b'{"sha256":"%s",' % hashlib.sha256(rest).hexdigest().encode() + rest)
        old = self._part.with_suffix(".old")
        try:
            if self.path.exists():
                os.replace(self.path, old)
            os.replace(self._part, self.path)
        except BaseException as error:  # Ctrl-C comes between any two steps
            if old.exists() and not self.path.exists():
                os.replace(old, self.path)
            if isinstance(error, OSError):
                raise not_writable(self.path, error) from error
            raise
        with partial_path(old):
            pass

    def abandon(self) -> None:
        """Delete what was written of an incomplete bundle."""
        self._partial.close()

    def _write(self, name: str, data: bytes) -> None:
        try:
            path = self._part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise not_writable(self.path, error) from error


def compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _is_bundle_or_empty(folder: Path) -> bool:
    return (folder / MANIFEST).exists() or not any(folder.iterdir())


def without_comments(text: str) -> str:
    """Return WGSL without comments and indentation. WGSL has no strings, and our templates no block comments."""
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def player_files() -> Iterator[tuple[str, bytes]]:
    """Yield the player's files by their names in a bundle: the output of `npm run player`, and the license."""
    web = web_folder()
    for path in sorted((web / "player").glob("*.js")):
        yield f"player/src/{path.name}", path.read_bytes()
    yield "player/LICENSE", (web / "LICENSE").read_bytes()


# -- sizes ------------------------------------------------------------------------------------------------------------


class OmittedCheck(TypedDict):
    """A check that was left out."""

    op: str
    name: str
    reason: str


class FirstVisit(TypedDict):
    """Bytes of the first download."""

    page_gzip: int
    plan_gzip: int
    weights: int


class BundleSummary(TypedDict):
    """The contents and sizes of a bundle."""

    folder: str
    name: str
    kind: Annotated[str, "language, encoder, image, program or check"]
    methods: Annotated[dict[str, list[str]], "the variants of each method, the best first"]
    sampling_defaults: Annotated[
        dict[str, float] | None, "of a language model: settings of requests that set none; null for others"
    ]
    omitted: Annotated[list[OmittedCheck], "checks that were left out"]
    files: int
    bytes: int
    visit: Annotated[FirstVisit, "bytes that a visitor loads first"]


def summary(folder: PathLike) -> BundleSummary:
    """Return sizes in bytes. `visit` is the first download, on a GPU that supports the best variant: the page, the
    player, plans and kernels as a server compresses them, and weights, which do not compress."""
    manifest = read_manifest(folder)
    root = Path(folder)
    paths = [path for path in root.rglob("*") if path.is_file()]
    listed = {root / file.path for file in manifest.files.values()}
    page = [path for path in paths if path not in listed and path.name != MANIFEST and "LICENSE" not in path.name]
    used = {file.sha256: file for file in _first_files(manifest)}.values()
    weights = [file for file in used if file.path.endswith(".bin")]
    texts = [root / file.path for file in used if file not in weights]
    sampling = manifest.language.sampling if manifest.language is not None else None
    return {
        "folder": str(root),
        "name": manifest.name,
        "kind": manifest.kind,
        "methods": {name: [str(variant) for variant in variants] for name, variants in manifest.methods.items()},
        "sampling_defaults": None if sampling is None else dict(sampling),
        "omitted": list(manifest.data.get("omitted", ())),
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
    """Return the files of the best variant of each method, and those of its kind: tokenizers, labels, answers."""
    files = [file for variants in manifest.methods.values() for file in _variant_files(variants[0])]
    for part in (manifest.data.get(kind, {}) for kind in ("language", "encoder", "image")):
        files += [manifest.files[name] for name in part.values() if isinstance(name, str) and name in manifest.files]
    checks = manifest.data.get("check", ())
    names = {array["file"] for check in checks for array in (*check["inputs"], *check["outputs"])}
    return files + [manifest.files[name] for name in sorted(names)]


def _variant_files(variant: BundleVariant) -> list[BundledFile]:
    return [variant.plan, variant.wgsl, *variant.weights]
