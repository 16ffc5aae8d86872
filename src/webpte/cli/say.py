"""Text of strangers, made harmless for a terminal. Imports nothing that would make every command start slower."""

from __future__ import annotations

import sys

from ..tools.text import plain


def say(text: str = "", end: str = "\n", error: bool = False) -> None:
    """Print a line, or a piece of one, to stdout or stderr."""
    print(plain(text), end=end, file=sys.stderr if error else sys.stdout, flush=True)
