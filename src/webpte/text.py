"""Format numbers, counts and names for messages and reports, safe to print whatever file they come from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

# Control characters except tab and newline, bidirectional marks, invisible characters, lone surrogates.
_UNSAFE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def sanitize(text: str) -> str:
    """Return the text with U+FFFD for each character that a terminal would interpret or hide."""
    return _UNSAFE.sub("\ufffd", text)


def sanitize_line(text: str) -> str:
    """Return a name as one line that is safe to print."""
    return sanitize(text).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", " ")


def shell_word(name: object) -> str:
    """Return a path as one word of a command line, in the quotes of the system's shells where it needs any."""
    if os.name == "nt":
        import subprocess  # only messages with commands need it

        return subprocess.list2cmdline([str(name)])
    import shlex

    return shlex.quote(str(name))


def close_matches(word: object, known: Iterable[object], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most similar to a word."""
    from difflib import get_close_matches  # only errors need it

    names = [name for name in known if isinstance(name, str)]
    return get_close_matches(word, names, count, cutoff) if isinstance(word, str) else []


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return ` (did you mean 'name'?)` for the most similar name, or nothing if none is similar."""
    close = close_matches(word, known)
    return f" (did you mean {close[0]!r}?)" if close else ""


def size(count: float) -> str:
    """Return a number of bytes with three digits and a decimal unit."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.5:  # three digits would round it up to the next unit
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} GB"


def duration(seconds: float) -> str:
    """Return a duration with three digits, in seconds, milliseconds or microseconds."""
    if seconds >= 999.5:
        return f"{seconds:.0f} s"
    if seconds >= 0.9995:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 0.9995e-3 else f"{seconds * 1e6:.3g} µs"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, `1 layer` or `2 layers`. A noun that ends in a sibilant takes "es"."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count} {noun}{ending}"


def lines(title: str, rows: Mapping[str, str]) -> str:
    """Return a title and, below it, a line for each row."""
    width = max((len(name) for name in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in rows.items())])


def table(title: str, rows: Mapping[str, str]) -> str:
    """Return a title and rows as an HTML table. All their text is escaped."""
    import html  # only notebooks need it

    cells = "".join(
        f'<tr><th style="text-align: left; vertical-align: top">{html.escape(sanitize(name))}</th>'
        f'<td style="text-align: left; white-space: pre-wrap">{html.escape(sanitize(text))}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table><caption>{html.escape(sanitize(title))}</caption>{cells}</table>"
