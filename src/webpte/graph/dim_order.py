"""Tensors that lie in memory in another order of dims, such as channels last.

Here every tensor is row-major. Callers pass arrays of any strides, and get row-major ones; what the file holds in
another order is put in order when it is loaded.
"""

from __future__ import annotations

import numpy as np

from ..container import MappedFile, Span, TensorValue


def row_major(value: TensorValue) -> bool:
    return value.dim_order == tuple(range(len(value.sizes)))


def in_order(span: Span, value: TensorValue) -> Span:
    """The data of a tensor in the order of its dims: as it is, if that is how the file has it."""
    if row_major(value) or not span.size:
        return span
    stored = np.frombuffer(span.view(), f"V{value.dtype.itemsize}").reshape([value.sizes[d] for d in value.dim_order])
    ordered = np.ascontiguousarray(stored.transpose(np.argsort(value.dim_order)))
    return Span(MappedFile.from_bytes(f"{span.file.path}, in order", ordered.tobytes()), 0, span.size)
