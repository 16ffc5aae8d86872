"""What this process holds on its devices, all programs, methods and forks together."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from .forks import in_children

_sizes: dict[int, int] = {}
_numbers = itertools.count()


def note_buffer(buffer: Any, nbytes: int) -> None:
    """Count a buffer for as long as the object lives. Whoever destroys one lets go of it, too."""
    number = next(_numbers)
    _sizes[number] = nbytes
    weakref.finalize(buffer, _sizes.pop, number, None).atexit = False


def held() -> int:
    """Bytes of all buffers there are."""
    return sum(list(_sizes.values()))  # a copy first: others may come and go meanwhile


@in_children
def _forget() -> None:
    """They are the parent's."""
    _sizes.clear()
