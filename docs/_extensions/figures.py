"""Puts drawings (.svg) into the page itself, where they take the colors of its light or dark theme.

A drawing with another one beside it whose name ends in -narrow is replaced by that on a phone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-resolved", _inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(app: Any, page: Any, name: str) -> None:
    if app.builder.format != "html":
        return
    for image in list(page.findall(nodes.image)):
        if image["uri"].endswith(".svg"):
            path = Path(app.srcdir, image["uri"])
            narrow = path.with_stem(f"{path.stem}-narrow")
            drawings = {"drawing wide": path, "drawing narrow": narrow} if narrow.exists() else {"drawing": path}
            html = "".join(f'<div class="{kind}">{file.read_text("utf-8")}</div>' for kind, file in drawings.items())
            image.replace_self(nodes.raw("", html, format="html"))
