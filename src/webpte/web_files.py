"""The files of the npm package that bundles copy and the server shows: pages and the player."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .errors import Error

# Files of other pages that a page has, too. Its own files replace those of the same name.
BORROWED_FILES = {"bench": "check/compare.js", "server": "language/*"}


def web_folder() -> Path:
    """Return the npm package's folder: beside `src` in a checkout, inside the package if it is installed."""
    package = Path(__file__).parent
    for folder in (package / "web", package.parents[1] / "web"):
        if (folder / "player").is_dir():
            return folder
    raise Error(
        f"the web player is missing beside {package}",
        code="missing_player",
        hint="Install webpte again, from a wheel or a checkout.",
    )


def page_paths(page: str) -> dict[str, Path]:
    """Return the paths of a page's files by name, with the files that all pages share."""
    pages = web_folder() / "pages"
    borrowed = sorted(pages.glob(BORROWED_FILES[page])) if page in BORROWED_FILES else []
    return {path.name: path for path in (*sorted(pages.glob("shared*")), *borrowed, *sorted((pages / page).glob("*")))}


def page_files(page: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of a page's files, unminified so that users can edit them."""
    for name, path in page_paths(page).items():
        yield name, path.read_bytes()
