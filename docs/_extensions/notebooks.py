"""Makes pages of notebooks: their text, their code, and the outputs that are stored in them. Nothing is run."""

from __future__ import annotations

import json
import re
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser

SHELL = "%%sh\n"  # a cell of commands
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookParser(MystParser):
    """A notebook as the Markdown it would be."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        super().parse(to_markdown(inputstring), document)


def to_markdown(text: str) -> str:
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            shell = source.startswith(SHELL)
            parts.append(fenced("sh", source.removeprefix(SHELL)) if shell else fenced("python", source))
            parts += [shown(output) for output in cell["outputs"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(output: dict[str, Any]) -> str:
    """An output in the richest form that a page has."""
    if output["output_type"] == "stream":
        return fenced("output", _ANSI.sub("", "".join(output["text"])))
    if output["output_type"] == "error":
        return fenced("output", f"{output['ename']}: {output['evalue']}")
    data = output["data"]
    if "text/html" in data:
        return fenced("{raw} html", "".join(data["text/html"]))
    return fenced("output", "".join(data["text/plain"]))


def fenced(language: str, body: str) -> str:
    """A block whose fence is longer than any inside it."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", body)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{body.rstrip()}\n{fence}" if body.strip() else ""


def setup(app: Any) -> dict[str, bool]:
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
