"""What this process holds on its devices, all programs, methods and forks together."""

from __future__ import annotations

import weakref
from typing import Any

from .forks import in_children

_sizes: dict[weakref.ref[Any], int] = {}
_let_go = _sizes.pop  # not a function of ours: what Ctrl-C raises in one that is called back would get lost


def note_buffer(buffer: Any, nbytes: int) -> None:
    """Count a buffer for as long as the object lives. Whoever destroys one lets go of it, too."""
    _sizes[weakref.ref(buffer, _let_go)] = nbytes


def held() -> int:
    """Bytes of all buffers there are."""
    return sum(list(_sizes.values()))  # a copy first: others may come and go meanwhile


@in_children
def _forget() -> None:
    """They are the parent's, and should they go here they find themselves in the list they were in."""
    global _sizes, _let_go
    _sizes = {}
    _let_go = _sizes.pop
