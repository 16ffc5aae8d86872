"""Write the folder of a Space, a repository of static pages on the hub: python -m docs.make_space DIR [SmolLM2.pte]

It has the page that measures a GPU and three demos. Their exports take ten minutes, unless they are cached or given.
"""

from __future__ import annotations

import argparse
import html
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import webpte
from docs.make_page_screenshots import chat, image, search
from webpte.bundles import bundle_bench

CARD = """---
title: webpte
emoji: 🧩
colorFrom: blue
colorTo: green
sdk: static
app_file: index.html
license: bsd-3-clause
---
Models exported by ExecuTorch, on the visitor's GPU, by [webpte](https://github.com/webpte/webpte) {version}.
"""
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>webpte</title>
<h1>webpte {version}</h1>
<p>These pages run models on your GPU, through WebGPU. Nothing that you enter leaves this computer.</p>
<ul>
{links}
</ul>
</html>
"""
TITLES = {
    "chat": "Chat with SmolLM2 135M",
    "search": "Search sentences by meaning",
    "image": "Find faces in an image",
    "bench": "Measure your GPU",
}


def write_space(folder: Path, titles: Mapping[str, str]) -> None:
    """Write the page that links the bundles of a folder, and the card of the Space."""
    missing = [name for name in titles if not (folder / name / "manifest.json").is_file()]
    if missing:
        raise ValueError(f"{folder}: expected bundles {', '.join(titles)}, got none of {', '.join(missing)}")
    links = "\n".join(f'<li><a href="{name}/">{html.escape(title)}</a>' for name, title in titles.items())
    (folder / "index.html").write_text(PAGE.format(version=webpte.__version__, links=links), encoding="utf-8")
    (folder / "README.md").write_text(CARD.format(version=webpte.__version__), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("program", type=Path, nargs="?", help="of SmolLM2")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        for bundle in (chat(Path(work), arguments.program), search(Path(work)), image(Path(work))):
            shutil.move(bundle, arguments.folder / bundle.name)
    bundle_bench(arguments.folder / "bench")
    write_space(arguments.folder, TITLES)


if __name__ == "__main__":
    main()
