"""Kernels of an untrusted plan, before a shader compiler reads them.

Compilers walk expressions, types and blocks by recursion. A text that nests thousands of levels overflows the stack of
this process, which no exception would come of. Kernels that webpte renders nest 10 levels, and their longest statement
has about 550 characters.
"""

from __future__ import annotations

import re

from ..budgets import spend
from ..errors import FormatError

MAX_NESTING = 64  # brackets that are open at once
MAX_STATEMENT = 4096  # characters: as many operators could nest
MAX_BRANCHES = 256  # `else` of a kernel: each nests in the one before
_BRACKETS = re.compile(r"[(\[{]|[)\]}]")
_COMMENT = re.compile(r"//[^\n\v\f\r]*")
_ENDS = re.compile(r"[;{}]")


def check_kernel_text(text: str, where: str) -> None:
    """Refuse a text that is too long, or nests more deeply than a compiler survives."""
    spend("kernel text", len(text), where)
    if "/*" in text:
        raise FormatError(f"{where}: expected a kernel without /* comments */, which nest", code="kernel")
    text = _COMMENT.sub("", text)
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth = depth + 1 if bracket in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    longest = max(map(len, _ENDS.split(text)))
    branches = text.count("else")
    for found, most, what in (
        (deepest, MAX_NESTING, "brackets open at once"),
        (longest, MAX_STATEMENT, "characters in a statement"),
        (branches, MAX_BRANCHES, "branches"),
    ):
        if found > most:
            raise FormatError(f"{where}: a kernel has {found} {what}; at most {most} are allowed", code="kernel")
