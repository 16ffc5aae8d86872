"""The ops that a pass looks for, by the part they play.

    PATTERN = {"product": ("aten.mm.default", "aten.bmm.default"), "sum": ("aten.add.Tensor",)}

A pass that rewrites one shape of graph names its ops in such a table, once, and asks `roles(PATTERN)` for the part of
a call. Everything else it has to know of an op is a fact of the op.
"""

from __future__ import annotations

from collections.abc import Mapping

Pattern = Mapping[str, tuple[str, ...]]


def roles(pattern: Pattern) -> dict[str, str]:
    """The part of each op, by its name."""
    return {name: role for role, names in pattern.items() for name in names}
