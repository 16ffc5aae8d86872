"""The files of the npm package that bundles copy and the server shows: pages and the player."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .errors import Error

# Files of other pages that a page has, too. Its own files replace those of the same name.
BORROWED_FILES = {
    "bench": ("check/compare.js",),
    "server": (
        "language/index.html",
        "language/conversations.js",
        "language/images.js",
        "language/markdown.js",
        "language/page.css",
        "language/page.js",
    ),
}


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


def page_files(page: str) -> Iterator[tuple[str, bytes]]:
    """Yield a page and the files that all pages share, unminified so that users can edit them."""
    pages = web_folder() / "pages"
    borrowed = [pages / name for name in BORROWED_FILES.get(page, ())]
    paths = {path.name: path for path in (*sorted(pages.glob("shared*")), *borrowed, *sorted((pages / page).glob("*")))}
    for name, path in paths.items():
        yield name, path.read_bytes()
