"""Where the lines of a kernel's WGSL come from: for people who read it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jinja2

from .kernel import LIB, Kernel, render, render_template, template_folder

_MARK = re.compile(r" //@([\w.-]+:\d+);")
_ENDS = {"{{": "}}", "{$": "$}", "{#": "#}"}
_TRIMS = ("$}", "#}", "-}}")  # they remove the line break after them
_OPENS = re.compile("|".join(map(re.escape, _ENDS)))


@dataclass(frozen=True)
class SourceLine:
    """A line of a kernel's text, and the template lines that it comes from, such as `linear.wgsl:12`."""

    text: str
    origin: str  # empty for lines that no template contains: the uniform block, and bindings in parts


def source_lines(kernel: Kernel) -> list[SourceLine]:
    """Return the lines of `render(kernel)` with their origins. A saved kernel has no templates, so no origins."""
    if kernel.text is not None:
        return [SourceLine(line, "") for line in render(kernel).split("\n")]
    marked = render_template(kernel, _MarkingLoader([template_folder(kernel.home), LIB]))
    return [_source_line(line) for line in marked.split("\n")]


def _source_line(marked: str) -> SourceLine:
    return SourceLine(_MARK.sub("", marked), " ".join(dict.fromkeys(_MARK.findall(marked))))


class _MarkingLoader(jinja2.FileSystemLoader):
    """Appends its file and number as a comment to every line of a template."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        source, path, is_current = super().get_source(environment, template)
        return "\n".join(_mark(source.split("\n"), os.path.basename(template))), path, is_current


def _mark(lines: list[str], name: str) -> Iterator[str]:
    """Yield the lines, marked unless empty, a statement, or with an end that belongs to Jinja.

    Jinja removes the line break after a statement or a comment: a mark in between would keep it.
    """
    end = ""  # of what the line begins in
    for number, line in enumerate(lines, 1):
        statement = not end and line.lstrip().startswith("$$")
        if not statement:
            end = _open_end(line, end)
        plain = statement or end or not line.strip() or line.endswith(_TRIMS)
        yield line if plain else f"{line} //@{name}:{number};"


def _open_end(line: str, end: str) -> str:
    """Return the delimiter that closes what is open at the end of a line, which begins inside of `end`."""
    at = 0
    while True:
        if not end:
            opened = _OPENS.search(line, at)
            if opened is None:
                return ""
            end, at = _ENDS[opened[0]], opened.end()
        closed = line.find(end, at)
        if closed < 0:
            return end
        end, at = "", closed + 2
