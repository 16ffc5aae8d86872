"""Colors for our kernels: WGSL with lines and marks of the templater in between. Use `:language: kernel`."""

from __future__ import annotations

from typing import Any

from pygments.lexer import inherit
from pygments.lexers.wgsl import WgslLexer
from pygments.token import Comment


class KernelLexer(WgslLexer):  # type: ignore[misc]
    name = "WGSL template"
    aliases = ["kernel"]  # noqa: RUF012 - as Pygments has it
    tokens = {  # noqa: RUF012
        "blankspace": [(r"\{\$.*?\$\}|\{\{.*?\}\}|\$\$[^\n]*", Comment.Preproc), inherit],
    }


def setup(app: Any) -> dict[str, bool]:
    app.add_lexer("kernel", KernelLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
