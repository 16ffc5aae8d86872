"""Bundles the small model of `demo/` into the site, where visitors talk to it on their own GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import webpte

FOLDER = "demo"  # in the sources and in the site


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", _bundle)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _bundle(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        with webpte.load(Path(app.srcdir, FOLDER, "model.pte")) as program:
            webpte.bundle(program, Path(app.outdir, FOLDER), name="Answers by heart", sequences=1)
