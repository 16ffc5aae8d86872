"""Numbers and names in messages and pictures, fit for people and for terminals, whoever wrote the file they are of."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Control characters but tab and newline; marks that turn the direction of writing; invisible ones; halves of pairs.
_UNSAFE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def plain(text: str) -> str:
    """The text with a mark in the place of each character that a terminal would obey or hide."""
    return _UNSAFE.sub("\ufffd", text)


def size(count: float) -> str:
    """Bytes, with three digits and a decimal unit."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.5:  # what three digits would round up belongs to the next unit
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} GB"


def line(text: str) -> str:
    """A name of a file or in it, in one line."""
    return plain(text).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", " ")


def lines(title: str, rows: Mapping[str, str]) -> str:
    """A title and rows below it."""
    width = max((len(name) for name in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in rows.items())])


def table(title: str, rows: Mapping[str, str]) -> str:
    """The same as HTML; whatever the rows hold is text."""
    import html  # for notebooks only

    listed = "".join(
        f'<tr><th style="text-align: left; vertical-align: top">{html.escape(plain(name))}</th>'
        f'<td style="text-align: left; white-space: pre-wrap">{html.escape(plain(text))}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table><caption>{html.escape(plain(title))}</caption>{listed}</table>"
