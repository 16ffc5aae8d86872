"""NumPy versions of kernel calls that have no op of ours: what a program then runs on the CPU with no torch installed.

Arguments are those of the out-variant's schema, in order and without the outs; a kernel returns its output or a tuple.
The caller casts to the dtypes the program declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}
LARGEST_PRODUCT = 1 << 26  # elements: a file of three vectors could ask for their outer product


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a function under the names it has in a file."""

    def register(fn: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, fn))
        return fn

    return register


@kernel("aten::topk.values")
def topk(self: Array, k: int, dim: int, largest: bool, sorted_: bool) -> tuple[Array, Array]:
    keys = self if not largest else -self if self.dtype.kind == "f" else ~self  # integers: the smallest has no negative
    order = np.argsort(keys, axis=dim, kind="stable").take(range(k), axis=dim)
    return np.take_along_axis(self, order, axis=dim), order


@kernel(
    "aten::__lshift__.Scalar_out",
    "aten::__lshift__.Tensor_out",
    "aten::bitwise_left_shift.Tensor_out",
    "aten::bitwise_left_shift.Tensor_Scalar_out",
)
def shift_left(self: Array, other: Array | int) -> Array:
    return np.left_shift(self, other)


@kernel(
    "aten::__rshift__.Scalar_out",
    "aten::__rshift__.Tensor_out",
    "aten::bitwise_right_shift.Tensor_out",
    "aten::bitwise_right_shift.Tensor_Scalar_out",
)
def shift_right(self: Array, other: Array | int) -> Array:
    return np.right_shift(self, other)


@kernel("aten::_native_batch_norm_legit.no_stats_out")
def batch_norm_by_its_own_statistics(
    self: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """What `InstanceNorm` becomes: its channels are those of all images, side by side in one."""
    others = tuple(d for d in range(self.ndim) if d != 1)
    per_channel = tuple(-1 if d == 1 else 1 for d in range(self.ndim))
    wide = self.astype(np.float64)
    mean = wide.mean(others)
    scale = 1 / np.sqrt(wide.var(others) + eps)
    result = (wide - mean.reshape(per_channel)) * scale.reshape(per_channel)
    if weight is not None:
        result *= weight.reshape(per_channel)
    if bias is not None:
        result += bias.reshape(per_channel)
    return result, mean, scale


@kernel("aten::_embedding_bag.out")
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[Array, Array, Array, Array]:
    """The sum (mode 0), mean (1) or maximum (2) of each bag's rows: bag i has the indices from offsets[i] on."""
    starts = offsets[:-1] if include_last_offset else offsets
    ends = np.append(starts[1:], indices.size)
    if starts.size > indices.size + 1:
        raise ValueError(f"{starts.size} bags of {indices.size} indices: more than one of them is empty")
    if starts.size and (starts[0] != 0 or (starts > ends).any()):
        raise ValueError(f"offsets must rise from 0 to at most {indices.size}")
    if indices.size and not 0 <= indices.min() <= indices.max() < len(weight):
        raise IndexError(f"indices from {indices.min()} to {indices.max()} into {len(weight)} rows")
    bags = np.zeros((starts.size, weight.shape[1]))
    sizes = np.zeros(starts.size, np.int64)
    largest = np.zeros((starts.size, weight.shape[1]) if mode == 2 else starts.size, np.int64)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        mine = start + np.flatnonzero(indices[start:end] != padding_idx)
        rows = weight[indices[mine]].astype(np.float64)  # (rows of the bag, width)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[mine, None]
        sizes[i] = len(mine)
        if mode == 2 and len(mine):
            bags[i], largest[i] = rows.max(0), indices[mine][rows.argmax(0)]
        else:
            bags[i] = rows.sum(0) / (max(len(mine), 1) if mode == 1 else 1)
    return bags, np.repeat(np.arange(starts.size), ends - starts), sizes, largest


@kernel("aten::_trilinear.out")
def trilinear(
    i1: Array,
    i2: Array,
    i3: Array,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int,
) -> Array:
    """What `Bilinear` becomes: three tensors, each lacking the dims it is expanded by, multiplied and summed."""
    operands = [(i1, expand1), (i2, expand2), (i3, expand3)]
    rank = i1.ndim + len(expand1)
    labels = [[d for d in range(rank) if d not in expand] for _, expand in operands]
    sizes = {
        d: n for (array, _), mine in zip(operands, labels, strict=True) for d, n in zip(mine, array.shape, strict=True)
    }
    kept = [d for d in range(rank) if d not in sumdim]
    if (elements := math.prod(sizes.get(d, 1) for d in kept)) > LARGEST_PRODUCT:
        raise ValueError(f"a product of {elements} elements; at most {LARGEST_PRODUCT} are made")
    arguments = [part for (array, _), mine in zip(operands, labels, strict=True) for part in (array, mine)]
    result: Array = np.einsum(*arguments, kept, optimize=True)
    return result


@kernel("executorch_prim::et_copy_index.tensor")
def copy_index(self: Array, row: Array, index: int) -> Array:
    """A loop over rows has made one more."""
    return np.concatenate([self[:index], row[None]])
