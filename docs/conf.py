"""Sphinx settings. `python -m sphinx -W -b html docs OUT` builds the site."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent / "src")]  # the code beside these pages

import webpte  # noqa: E402
from webpte.llm import LLM, Chat, Sequence  # noqa: E402

# Defaults are read from the source, which says `**settings` here; the page describes these beside it.
for _function in (
    *(LLM.generate, LLM.generate_many, LLM.complete, LLM.chat),
    *(Sequence.generate, Sequence.complete, Chat.ask),
):
    del vars(_function)["__signature__"]

project = "webpte"
author = "the webpte authors"
copyright = "the webpte authors"
release = version = webpte.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "references",
    "figures",
    "kernels",
    "notebooks",
    "demo",
]
exclude_patterns = ["_build"]
templates_path: list[str] = []
source_suffix = {".md": "markdown"}
smartquotes = False  # `--html` is two dashes, whatever stands around it
default_role = "code"  # docstrings write `names` in single backticks

myst_heading_anchors = 3
nitpicky = True  # a reference that leads nowhere is an error, but for types that only annotations name
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "webpte"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = False

# What one would type has a button that copies it; what is printed has none.
copybutton_selector = ", ".join(f"div.highlight-{language} pre" for language in ("python", "sh", "console", "toml"))
copybutton_prompt_text = "$ "
