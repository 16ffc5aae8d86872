"""`webpte.widget` and `Program.show`: a bundle's page inside a notebook, on the GPU of the browser that looks at it."""

from __future__ import annotations

import inspect
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ..bundles import bundle
from ..bundles.web import page_files, player_files
from ..errors import Error, InputError
from ..runtime import Program, load
from ..runtime.checks import path_of
from ..runtime.manifest import MANIFEST, read_manifest

MOST = 1 << 20  # bytes of an answer: notebook servers drop what is much larger


class BundleFiles:
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


BUNDLE_OPTIONS = [name for name in inspect.signature(bundle).parameters if name not in ("program", "path")]
FRONT = Path(__file__).with_name("front.js")


def widget(source: Program | str | os.PathLike[str], **options: Any) -> Any:
    """The page of a program, a `.pte` file or the folder of a bundle; `options` are those of `webpte.bundle`.

    Files travel over the widget's own messages: neither a web server nor a port is needed. The browser that shows the
    notebook computes, and keeps the weights.
    """
    if not isinstance(source, Program):
        path_of(source, "source")
    if unknown := [name for name in options if name not in BUNDLE_OPTIONS]:
        raise InputError(f"{unknown[0]!r} is no option of webpte.bundle, which takes {', '.join(BUNDLE_OPTIONS)}")
    made = _widget_class()  # before a bundle is written for nothing
    if not isinstance(source, Program) and Path(source).is_dir():
        if options:
            raise InputError(
                f"{source} is a bundle already, for which {', '.join(options)} mean nothing", code="not_applicable"
            )
        return made(BundleFiles(Path(source)))
    folder = tempfile.TemporaryDirectory(prefix="webpte-")
    try:
        shown = made(BundleFiles(_bundled(source, Path(folder.name, "site"), options)))
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(shown, folder.cleanup)
    return shown


def _bundled(source: Program | str | os.PathLike[str], path: Path, options: dict[str, Any]) -> Path:
    if isinstance(source, Program):
        return bundle(source, path, **options)
    with load(source) as program:
        return bundle(program, path, **options)


def _widget_class() -> Any:
    """A class over anywidget's, which is imported only here: few who install webpte have notebooks."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise Error("a program is shown in a notebook by anywidget: pip install 'webpte[notebook]'") from error

    class ProgramWidget(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = FRONT
        kind = traitlets.Unicode().tag(sync=True)
        digest = traitlets.Unicode().tag(sync=True)
        page = traitlets.List(traitlets.Unicode()).tag(sync=True)

        def __init__(self, shelf: BundleFiles) -> None:
            super().__init__(kind=shelf.kind, digest=shelf.digest, page=shelf.page)
            self.shelf = shelf
            self.on_msg(lambda _, content, buffers: self.send(*shelf.answer(content)))

    return ProgramWidget
