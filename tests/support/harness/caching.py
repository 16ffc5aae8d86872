"""A program whose state, inputs and live integer all show in its answers, and the same in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_file, vk_blob
from webpte.container import DelegateCall, DType, TensorValue, VkInt, VkSymInt, VkTensor

Array = np.ndarray[Any, Any]
ROWS, CAPACITY, WIDTH = 7, 16, 4
INITIAL = np.arange(CAPACITY * WIDTH, dtype=np.float32).reshape(1, CAPACITY, 1, WIDTH)
STATE_BYTES = INITIAL.nbytes


def caching_pte(path: Path, names: Sequence[str] = ("forward",)) -> Path:
    """Each method f(x, scale, n): x goes to its cache from row n[0] on; gives cache * scale + n[0], and x + scale.

    x has 1 to 7 rows. No kernel writes over `scale`, so it is still in place when the method has run.
    """
    pte_file(path, [_method(name) for name in names])
    return path


def _method(name: str) -> Method:
    f32, rows, whole = DType.FLOAT32, (1, ROWS, 1, WIDTH), (1, CAPACITY, 1, WIDTH)
    x, scale, data, number, zero, one, cache, unused, scaled, moved, added = range(11)
    values = [
        *(VkTensor(f32, rows), VkTensor(f32, (WIDTH,)), VkTensor(DType.INT32, (1,)), VkSymInt(0), VkInt(0), VkInt(1)),
        VkTensor(f32, whole, constant_id=0),
        *(VkTensor(f32, (1,)), VkTensor(f32, whole), VkTensor(f32, whole), VkTensor(f32, rows)),
    ]
    calls = [
        ("et_vk.select_as_symint.default", [data, zero, zero, number]),
        ("update_cache.default", [x, cache, number, unused]),
        ("aten.mul.Tensor", [cache, scale, scaled]),
        ("aten.add.Scalar", [scaled, number, one, moved]),
        ("aten.add.Tensor", [x, scale, one, added]),
    ]
    ends = [value for i in (x, scale, data, moved, added) if isinstance(value := values[i], VkTensor)]
    borders = [TensorValue(v.dtype, v.dims, tuple(range(len(v.dims))), dynamic=True, place=ALONE) for v in ends]
    blob = vk_blob(values, calls, [x, scale, data], [moved, added], [INITIAL])
    call = DelegateCall(0, tuple(range(len(ends))))
    return Method(name, borders, [0, 1, 2], [3, 4], [call], [DelegateBlob(blob)])


class Cache:
    """The expected content of the cache of a method or fork."""

    def __init__(self, rows: Array = INITIAL) -> None:
        self.rows = rows.copy()

    def answers(self, x: Array, scale: Array, n: Array) -> tuple[Array, Array]:
        start = int(n[0])
        self.rows[:, start : start + x.shape[1]] = x
        return self.rows * scale + np.float32(start), x + scale


def inputs(chance: np.random.Generator) -> tuple[Array, Array, Array]:
    """Small integers, so that answers are exact."""
    count = int(chance.integers(1, ROWS + 1))
    x = chance.integers(-99, 99, (1, count, 1, WIDTH)).astype(np.float32)
    scale = chance.integers(1, 9, WIDTH).astype(np.float32)
    return x, scale, np.array([chance.integers(0, CAPACITY - count + 1)], np.int32)
