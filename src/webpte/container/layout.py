"""Shapes and element types as the formats write them, checked; shared by the three parsers."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import FormatError
from .dtypes import DType
from .flat import Table

MAX_RANK = 16  # ExecuTorch's own limit; it also keeps the product of hostile sizes a small number


def read_dtype(table: Table, slot: int, name: str, lookup: Callable[[int], DType]) -> DType:
    """The element type in a field, by one of the code tables of :class:`DType`."""
    try:
        return lookup(table.i8(slot, name))
    except FormatError as error:
        raise table.error(str(error), name, error.reason) from None


def read_sizes(table: Table, slot: int, name: str, code: str) -> tuple[int, ...]:
    """The sizes of a tensor's dimensions."""
    sizes = table.ints(slot, name, code)
    if len(sizes) > MAX_RANK:
        raise table.error(f"{len(sizes)} dimensions, at most {MAX_RANK} are possible", name, code="too_many_dims")
    if any(size < 0 for size in sizes):
        raise table.error(f"negative size in {sizes}", name, code="negative_size")
    return sizes


def read_dim_order(table: Table, slot: int, name: str, rank: int) -> tuple[int, ...]:
    """Dimensions from outermost to innermost in memory; contiguous if the file says nothing."""
    order = table.ints(slot, name, "B") or tuple(range(rank))
    if len(order) != rank or set(order) != set(range(rank)):
        raise table.error(f"{order[: MAX_RANK + 1]} is not an order of {rank} dimensions", name, code="dim_order")
    return order


def count_bytes(dtype: DType, sizes: tuple[int, ...]) -> int:
    """Bytes of a dense tensor."""
    return math.prod(sizes) * dtype.itemsize
