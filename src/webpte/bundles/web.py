"""The player and the pages, as they lie in a checkout or in an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import Error


def web_folder() -> Path:
    """The npm package: beside `src` in a checkout, inside the package once it is installed."""
    package = Path(__file__).parents[1]
    for folder in (package / "web", package.parents[1] / "web"):
        if (folder / "player").is_dir():
            return folder
    raise Error(f"the web player is missing beside {package}: install webpte again, from a wheel or a checkout")


def player_files() -> Iterator[tuple[str, bytes]]:
    """Its files by their names in a bundle: what `npm run player` makes of its modules, and the licence."""
    web = web_folder()
    for path in sorted((web / "player").glob("*.js")):
        yield f"player/src/{path.name}", path.read_bytes()
    yield "player/LICENSE", (web / "LICENSE").read_bytes()


def page_files(kind: str) -> Iterator[tuple[str, bytes]]:
    """The page of a kind of bundle, and what all pages share: as it is, for people who change it."""
    pages = web_folder() / "pages"
    for path in (*sorted(pages.glob("shared*")), *sorted((pages / kind).glob("*"))):
        yield path.name, path.read_bytes()
