"""What goes into a method and comes out of it, for type checkers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class DLPack(Protocol):
    """An array of another library, such as a torch tensor: read without a copy where that can be."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
"""What a tensor comes out as, in the dtype the program declares."""

Value = Array | Any
"""An output: an array, or what only the file can tell: a number, or for a call with several outputs a tuple.

So a type checker knows what arrays have, catches what they have not, and demands no test of what everybody knows of
their model. `np.asarray(y, np.float32)` says the rest, and `run(..., into=[array])` gives back what was given.
"""

Input = npt.ArrayLike | DLPack
"""Whatever NumPy makes an array of: arrays, nested lists, numbers; and torch tensors."""
