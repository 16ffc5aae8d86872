"""`webpte.widget` and `Program.show`: the page of a bundle in a notebook, on the GPU of the viewer's browser."""

from __future__ import annotations

import inspect
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ..bundles import bundle
from ..bundles.site import player_files
from ..errors import InputError, UnsupportedError
from ..runtime import Program, load_program
from ..runtime.checks import check_path
from ..runtime.manifest import MANIFEST, read_manifest
from ..text import plural
from ..web_files import page_files

MAX_REPLY_BYTES = 1 << 20  # notebook servers drop messages that are much larger
BUNDLE_OPTIONS = [name for name in inspect.signature(bundle).parameters if name not in ("program", "path")]
FRONT = Path(__file__).with_name("front.js")


class BundleFiles:
    """Serves the files of a bundle, the player and the page to a widget, and no other file of the machine."""

    def __init__(self, site: Path) -> None:
        manifest = read_manifest(site)
        self.site = site
        self.kind: str = manifest.kind
        self.digest: str = manifest.data["sha256"]
        # Page and player of this version: those in the folder may be older, or changed for another host.
        self._texts = {**dict(player_files()), **dict(page_files(self.kind))}
        self.page = [name for name, _ in page_files(self.kind)]
        self._files = {MANIFEST, *(file.path for file in manifest.files.values())}

    def __str__(self) -> str:
        return f"{self.kind}, {plural(len(self._files), 'file')}"

    def answer(self, content: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Return the bytes [begin, end) of a file that a message requests, with the file's size; or an error."""
        number = content.get("number") if isinstance(content, dict) else None
        try:
            data, size = self._read(content["path"], int(content["begin"]), int(content["end"]))
        except (KeyError, TypeError, ValueError, OSError, InputError) as error:
            return {"number": number, "error": str(error)}, []
        return {"number": number, "size": size}, [data]

    def _read(self, path: str, begin: int, end: int) -> tuple[bytes, int]:
        if not 0 <= begin <= end <= begin + MAX_REPLY_BYTES:
            raise InputError(
                argument=path,
                expected=f"a range of at most {MAX_REPLY_BYTES} bytes",
                got=f"{begin} to {end}",
                code="range",
            )
        if path in self._texts:
            return self._texts[path][begin:end], len(self._texts[path])
        if path not in self._files:
            raise InputError(f"the bundle has no file {path}", code="unknown_file")
        with open(self.site / path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(begin)
            return file.read(end - begin), size


def widget(source: Program | str | os.PathLike[str], **options: Any) -> Any:
    """Return a widget with the page of a program, a `.pte` file or the folder of a bundle.

    `options` are those of `webpte.bundle`. Files are sent as messages of the widget, so no web server and no port is
    needed. The browser that displays the notebook computes, and caches the weights.
    """
    if not isinstance(source, Program):
        check_path(source, "source")
    if unknown := [name for name in options if name not in BUNDLE_OPTIONS]:
        raise InputError(
            argument="options",
            expected=f"options of webpte.bundle ({', '.join(BUNDLE_OPTIONS)})",
            got=repr(unknown[0]),
            code="unknown_option",
        )
    widget_class = _widget_class()  # before a bundle is written in vain
    if not isinstance(source, Program) and Path(source).is_dir():
        if options:
            raise InputError(
                f"{source} is a bundle already; {', '.join(options)} would have no effect", code="not_applicable"
            )
        return widget_class(BundleFiles(Path(source)))
    folder = tempfile.TemporaryDirectory(prefix="webpte-")
    try:
        view = widget_class(BundleFiles(_write_bundle(source, Path(folder.name, "site"), options)))
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(view, folder.cleanup)
    return view


def _write_bundle(source: Program | str | os.PathLike[str], path: Path, options: dict[str, Any]) -> Path:
    if isinstance(source, Program):
        return bundle(source, path, **options)
    with load_program(source) as program:
        return bundle(program, path, **options)


def _widget_class() -> Any:
    """Return a subclass of anywidget's class. anywidget is imported here because it is optional."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise UnsupportedError(
            "showing a program in a notebook requires the anywidget package",
            hint="Run: pip install 'webpte[notebook]'",
            code="missing_package",
        ) from error

    class ProgramWidget(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = FRONT
        kind = traitlets.Unicode().tag(sync=True)
        digest = traitlets.Unicode().tag(sync=True)
        page = traitlets.List(traitlets.Unicode()).tag(sync=True)

        def __init__(self, files: BundleFiles) -> None:
            super().__init__(kind=files.kind, digest=files.digest, page=files.page)
            self._files = files
            self.on_msg(lambda _, content, buffers: self.send(*files.answer(content)))

        def __repr__(self) -> str:
            return f"ProgramWidget({self._files}); display it in a notebook"

    ProgramWidget.__qualname__ = "ProgramWidget"
    return ProgramWidget
