"""Kernel calls that run on the CPU: NumPy kernels, the references of ops, and torch's kernels if torch is installed.

Arguments are those of the out-variant's schema, in order and without the outs. A kernel returns its output or a tuple.
The caller casts to the dtypes that the program declares.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import Error, GraphError, RangeError
from ..graph import Bool as BoolLiteral
from ..graph import (
    BoolList,
    Call,
    Double,
    DoubleList,
    DType,
    Graph,
    Int,
    IntList,
    Null,
    Origin,
    String,
    TensorSpec,
    ValueList,
)
from ..graph.expressions import TermEvaluator
from ..lowering import BoundCall, Context, Frame, LiveNumbers, MethodContext, TensorOption, find
from ..plan.indices import refuse_positions
from ..typing import Array
from ..wgsl import Caps
from .torch_kernels import run_torch, torch_kernel

Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}
MAX_PRODUCT_ELEMENTS = 1 << 26  # elements: a file of three vectors could ask for their outer product


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a function under the names it has in a file."""

    def register(fn: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, fn))
        return fn

    return register


@kernel("aten::topk.values")
def topk(self: Array, k: int, dim: int, largest: bool, sorted_: bool) -> tuple[Array, Array]:
    """Return the k largest or smallest elements in order. NaN is greater than any number; of equals the first wins."""
    rows = np.atleast_1d(self)
    if largest:  # from the end, ascending: negated keys would put NaN last, and the smallest integer has no negative
        order = rows.shape[dim] - 1 - np.flip(np.argsort(np.flip(rows, dim), axis=dim, kind="stable"), dim)
    else:
        order = np.argsort(rows, axis=dim, kind="stable")
    order = order.take(range(k), axis=dim)
    values = np.take_along_axis(rows, order, axis=dim)
    return (values, order) if self.ndim else (values.reshape(()), order.reshape(()))


@kernel(
    "aten::__lshift__.Scalar_out",
    "aten::__lshift__.Tensor_out",
    "aten::bitwise_left_shift.Tensor_out",
    "aten::bitwise_left_shift.Tensor_Scalar_out",
)
def shift_left(self: Array, other: Array | int) -> Array:
    return np.left_shift(self, _in_dtype(other, self))


@kernel(
    "aten::__rshift__.Scalar_out",
    "aten::__rshift__.Tensor_out",
    "aten::bitwise_right_shift.Tensor_out",
    "aten::bitwise_right_shift.Tensor_Scalar_out",
)
def shift_right(self: Array, other: Array | int) -> Array:
    return np.right_shift(self, _in_dtype(other, self))


def _in_dtype(other: Array | int, like: Array) -> Array:
    """Return a number in an array's dtype, wrapped as PyTorch does; an array stays."""
    return other if isinstance(other, np.ndarray) else np.asarray(other).astype(like.dtype)


@kernel("aten::_native_batch_norm_legit.no_stats_out")
def batch_norm_by_its_own_statistics(
    self: Array, weight: Array | None, bias: Array | None, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array]:
    """Normalize by the batch's statistics. `InstanceNorm` calls it with the channels of all images in one image."""
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
    """Return the sum (mode 0), mean (1) or maximum (2) of each bag's rows: bag i has the indices from offsets[i] on."""
    starts = offsets[:-1] if include_last_offset else offsets
    ends = np.append(starts[1:], indices.size)
    if starts.size > indices.size + 1:
        raise ValueError(f"offsets: expected at most {indices.size + 1} bags, got {starts.size}")
    if starts.size and (starts[0] != 0 or (starts > ends).any()):
        raise ValueError(
            f"offsets: expected 0 first, then ascending numbers up to {indices.size}, got {starts.tolist()!s:.200}"
        )
    if indices.size and not 0 <= indices.min() <= indices.max() < len(weight):
        raise IndexError(f"indices: expected 0 to {len(weight) - 1}, got {indices.min()} to {indices.max()}")
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
            at = _first_greatest(rows)
            bags[i], largest[i] = np.take_along_axis(rows, at[None], axis=0)[0], indices[mine][at]
        else:
            bags[i] = rows.sum(0) / (max(len(mine), 1) if mode == 1 else 1)
    return bags, np.repeat(np.arange(starts.size), ends - starts), sizes, largest


def _first_greatest(rows: Array) -> Array:
    """Return the row of each column's greatest element: the first one, unless a later one is greater.

    As in PyTorch, NaN counts only if it comes first: nothing is greater than it, and it is greater than nothing.
    """
    best = np.zeros(rows.shape[1], np.int64)
    columns = np.arange(rows.shape[1])
    for at in range(1, len(rows)):
        best[rows[at] > rows[best, columns]] = at
    return best


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
    """Multiply and sum three tensors, as `Bilinear` does: each lacks the dims it is expanded by."""
    operands = [(i1, expand1), (i2, expand2), (i3, expand3)]
    rank = i1.ndim + len(expand1)
    labels = [[d for d in range(rank) if d not in expand] for _, expand in operands]
    sizes = {
        d: n for (array, _), mine in zip(operands, labels, strict=True) for d, n in zip(mine, array.shape, strict=True)
    }
    kept = [d for d in range(rank) if d not in sumdim]
    if (elements := math.prod(sizes.get(d, 1) for d in kept)) > MAX_PRODUCT_ELEMENTS:
        raise ValueError(f"a product of {elements} elements exceeds the limit of {MAX_PRODUCT_ELEMENTS}")
    arguments = [part for (array, _), mine in zip(operands, labels, strict=True) for part in (array, mine)]
    result: Array = np.einsum(*arguments, kept, optimize=True)
    return result


@kernel("executorch_prim::et_copy_index.tensor")
def copy_index(self: Array, row: Array, index: int) -> Array:
    """Return the rows before `index` and the new row, as a loop over rows appends it."""
    return np.concatenate([self[:index], row[None]])


def _numpy_kernel(name: str) -> Kernel | None:
    return KERNELS.get(name) or _reference(name)


def _reference(name: str) -> Kernel | None:
    """Return an op's NumPy reference. An out-variant is called without the tensor options; a delegate passes them."""
    kernel = "::" in name
    op = find(Call(name, (), (), Origin(0), kernel))
    if op is None or op.compute is None:
        return None
    compute = op.compute
    options = [i for i, (_, annotation) in enumerate(op.parameters) if kernel and annotation is TensorOption]

    def call(*args: Any) -> Any:
        full = list(args)
        for position in options:
            full.insert(position, None)
        return compute(*full)

    return call


class CpuKernels:
    """The kernel calls that the CPU can run, by name."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (_numpy_kernel(name) is not None or torch_kernel(name) is not None)

    def source(self, name: str) -> str:
        """Return what runs a kernel call on the CPU: "numpy" or "torch"."""
        return "torch" if _numpy_kernel(name) is None else "numpy"

    def run(self, call: Call, graph: Graph, tensors: dict[int, Array], scalars: dict[int, float]) -> dict[int, Array]:
        """Run a call and return its outputs by value id, in the dtypes the program declares."""
        outs = [graph.tensor(o) for o in call.outs]
        kernel = _numpy_kernel(call.name)
        try:
            args = [_python_value(graph, a, tensors, scalars) for a in call.args]
            if kernel is None:
                result = run_torch(call, args, outs)
            else:
                refuse_sizes(call, graph, tensors, scalars)
                refuse_positions(call, graph, tensors)
                result = kernel(*args)
            results = result if isinstance(result, (tuple, list)) else (result,)
            arrays = [spec.host_dtype.rounded(a) for spec, a in zip(outs, results, strict=True)]
        except Error:
            raise
        except IndexError as error:
            raise RangeError(f"{call.name} ({call.origin}): {error}", code="position") from error
        except Exception as error:
            raise GraphError(
                f"{call.name} ({call.origin}) failed on the CPU: {type(error).__name__}: {error}",
                code="cpu_kernel_failed",
            ) from error
        return dict(zip(call.outs, arrays, strict=True))


def refuse_sizes(call: Call, graph: Graph, tensors: Mapping[int, Array], scalars: Mapping[int, float]) -> None:
    """Compute the shapes of the results with the op's lowering, before NumPy allocates memory for them.

    The arguments come from the file: `full` of 10**12 elements is refused here, as it is on the device.
    """
    op = find(call)
    if op is None or not op.dtypes:  # its result is at most as large as its arguments
        return
    if op.unsupported_if and op.unsupported_if(call, graph):  # the lowering does not support the call
        return
    operands = (*graph.flatten(call.args), *call.outs)
    method = MethodContext(Caps(), len(graph.values))
    method.live = LiveNumbers(TermEvaluator(tensors, scalars))
    frame = Frame(graph, method, only=operands)
    stand_in = DType.FLOAT32 if DType.FLOAT32 in op.dtypes else min(op.dtypes, key=lambda dtype: dtype.short)
    for value_id, handle in frame.tensors.items():
        if handle.dtype not in op.dtypes:  # the reason why the call runs here; shapes do not depend on it
            handle.dtype = stand_in
        if value_id in tensors:
            handle.dims = tensors[value_id].shape
    for value_id, scalar in frame.scalars.items():
        if value_id in scalars:
            scalar.set(scalars[value_id])
    bound = BoundCall(op, call, frame)
    with contextlib.suppress(RangeError):  # a number is too large for the device; the shapes are known already
        bound.lower(Context(method, 0, op.home, call))


def _python_value(graph: Graph, value_id: int, tensors: dict[int, Array], scalars: dict[int, float]) -> Any:
    value = graph.values[value_id]
    match value:
        case TensorSpec():
            return tensors[value_id]
        case Null():
            return None
        case Int() | Double() | BoolLiteral() | String():
            return value.value
        case IntList() | DoubleList() | BoolList():
            return list(value.values)
        case ValueList():
            return [_python_value(graph, item, tensors, scalars) for item in value.ids]
    return scalars[value_id]
