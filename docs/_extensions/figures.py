"""Puts drawings (.svg) into the page itself, where they take the colours of its light or dark theme."""

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
            drawing = Path(app.srcdir, image["uri"]).read_text(encoding="utf-8")
            image.replace_self(nodes.raw("", f'<div class="drawing">{drawing}</div>', format="html"))
