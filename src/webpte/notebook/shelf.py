"""The files of a bundle, piece by piece, for a page that asks by messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..bundles.web import page_files, player_files
from ..errors import InputError
from ..runtime.manifest import MANIFEST, read_manifest

MOST = 1 << 20  # bytes of an answer: notebook servers drop what is much larger


class Shelf:
    """It gives out what the manifest names, the player and the page, and nothing else of the machine."""

    def __init__(self, site: Path) -> None:
        manifest = read_manifest(site)
        self.site = site
        self.kind: str = manifest.kind
        self.digest: str = manifest.data["sha256"]
        # Those of this version: a page of a folder may be older, and have been changed for another place.
        self._texts = {**dict(player_files()), **dict(page_files(self.kind))}
        self.page = [name for name, _ in page_files(self.kind)]
        self._files = {MANIFEST, *(file.path for file in manifest.files.values())}

    def answer(self, content: Any) -> tuple[dict[str, Any], list[bytes]]:
        """What a message asks for, [begin, end) of a file, with the size of it all; or why not."""
        number = content.get("number") if isinstance(content, dict) else None
        try:
            data, size = self._piece(content["path"], int(content["begin"]), int(content["end"]))
        except (KeyError, TypeError, ValueError, OSError, InputError) as error:
            return {"number": number, "error": str(error)}, []
        return {"number": number, "size": size}, [data]

    def _piece(self, path: str, begin: int, end: int) -> tuple[bytes, int]:
        if not 0 <= begin <= end <= begin + MOST:
            raise InputError(f"{path}: bytes {begin} to {end} are no piece of at most {MOST}")
        if path in self._texts:
            return self._texts[path][begin:end], len(self._texts[path])
        if path not in self._files:
            raise InputError(f"the bundle has no {path}")
        with open(self.site / path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(begin)
            return file.read(end - begin), size
