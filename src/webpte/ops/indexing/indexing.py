"""Elements chosen by index tensors: index, index_select, gather. Embeddings use the same kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError, UnsupportedError
from ...graph import DType, normalize_dim, numel
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.integers import elements_of
from ...lowering.registry import Unused, op
from ...lowering.shapes import Dims, broadcast, broadcast_strides, check_rank, coalesce, strides
from ...lowering.traits import Indexing, OpTraits, part_taken
from ...wgsl import Uniforms, dims8, u32
from ..layout.strided import word


class IndexedParams(Uniforms):
    rank: u32
    size: u32  # number of choices
    scale: u32  # elements from one choice to the next
    dims: dims8
    strides: dims8
    index_strides: dims8


class OffsetsParams(Uniforms):
    rank: u32
    size: u32
    scale: u32
    dims: dims8
    strides: dims8


def _refuse_masks(*indices: Tensor) -> None:
    for index in indices:
        if index.dtype is not DType.INT32:
            raise UnsupportedError(
                f"index {index!r}: boolean masks are not supported, because the shape of the result depends on data",
                hint="Keep the shape with torch.where, or pass integer indices.",
                code="mask_index",
            )


def take(
    cx: Context,
    x: Tensor,
    index: Tensor,
    out: Tensor,
    *,
    size: int,
    scale: int,
    x_strides: Dims,
    index_strides: Dims,
) -> None:
    """Move out[i, ...] = x.flat[i * x_strides[0] + ... + scale * index.flat[i * index_strides[0] + ...]] as bits.

    A negative index counts from `size`. One that is still outside stays inside the buffer: plan/indices.py reports it.
    """
    _refuse_masks(index)
    dims, (steps, index_steps) = coalesce(out.dims, x_strides, index_strides)
    check_rank(dims)
    params = IndexedParams(rank=len(dims), size=size, scale=scale, dims=dims, strides=steps, index_strides=index_steps)
    cx.dispatch(
        "indexing/indexed.wgsl",
        reads={"x": x, "index": index},
        writes={"y": out},
        params=params,
        threads=out.numel,
        word=word(x),
    )


def take_along(cx: Context, x: Tensor, axis: int, index: Tensor, out: Tensor) -> None:
    """Gather along the dim `axis` of `x`, which is replaced by all dims of `index`."""
    outer, inner = x.dims[:axis], x.dims[axis + 1 :]
    out.dims = (*outer, *index.dims, *inner)
    if x.dims[axis] == 0 and out.numel:
        raise ShapeError(f"dim {axis} of {list(x.dims)} has no elements to index", code="empty")
    own = strides(x.dims)
    x_steps = (*own[:axis], *(0,) * index.rank, *own[axis + 1 :])
    index_steps = (*(0,) * len(outer), *strides(index.dims), *(0,) * len(inner))
    take(cx, x, index, out, size=x.dims[axis], scale=own[axis], x_strides=x_steps, index_strides=index_steps)


@op(
    "aten.index_select.default",
    traits=OpTraits(
        memory_traffic={"self": part_taken},
        integers=elements_of("self"),
        indexing=Indexing(index="index", tensor="self", dim="dim"),
    ),
)
def index_select(cx: Context, self: Tensor, dim: int, index: Tensor, *, out: Tensor) -> None:
    axis = normalize_dim(dim, self.rank)
    if index.rank > 1:
        raise ShapeError(argument="index", expected="at most 1 dim", got=list(index.dims), code="rank")
    if self.rank == 0:
        out.dims = ()
        take(cx, self, index, out, size=1, scale=1, x_strides=(), index_strides=())
    elif index.rank == 0:
        out.dims = (*self.dims[:axis], 1, *self.dims[axis + 1 :])
        own = strides(self.dims)
        steps = tuple(0 if d == axis else s for d, s in enumerate(own))
        take(
            cx, self, index, out, size=self.dims[axis], scale=own[axis], x_strides=steps, index_strides=(0,) * self.rank
        )
    else:
        take_along(cx, self, axis, index, out)


@index_select.reference
def _(self: Any, dim: int, index: Any) -> Any:
    if self.ndim == 0:
        return self
    return np.take(self, index.reshape(-1), axis=dim)


@op(
    "aten.gather.default",
    traits=OpTraits(
        memory_traffic={"self": part_taken},
        dims=dim_rules.like("index"),
        integers=elements_of("self"),
        indexing=Indexing(index="index", tensor="self", dim="dim"),
    ),
)
def gather(cx: Context, self: Tensor, dim: int, index: Tensor, sparse_grad: Unused, *, out: Tensor) -> None:
    out.dims = index.dims
    if self.rank == 0 or index.rank == 0:  # a scalar counts as one element
        size = numel(self.dims)
        if max(self.rank, index.rank) > 1:
            raise ShapeError(
                f"index {list(index.dims)} and input {list(self.dims)} differ in rank", code="operand_mismatch"
            )
        take(cx, self, index, out, size=size, scale=1, x_strides=(0,) * index.rank, index_strides=(1,) * index.rank)
        return
    axis = normalize_dim(dim, self.rank)
    fits = all(i <= s or d == axis for d, (i, s) in enumerate(zip(index.dims, self.dims, strict=False)))
    if index.rank != self.rank or not fits or (out.numel and not self.dims[axis]):
        raise ShapeError(
            f"index {list(index.dims)} does not fit {list(self.dims)} along dim {dim}", code="operand_mismatch"
        )
    own = strides(self.dims)
    steps = tuple(0 if d == axis else s for d, s in enumerate(own))
    take(
        cx, self, index, out, size=self.dims[axis], scale=own[axis], x_strides=steps, index_strides=strides(index.dims)
    )


@gather.reference
def _(self: Any, dim: int, index: Any, sparse_grad: object) -> Any:
    if self.ndim == 0 or index.ndim == 0:
        return self.reshape(-1)[index]
    corner = tuple(slice(None) if d == dim % self.ndim else slice(n) for d, n in enumerate(index.shape))
    return np.take_along_axis(self[corner], index, dim)


@op(
    "aten.index.Tensor",
    traits=OpTraits(integers=elements_of("self"), indexing=Indexing(index="indices", tensor="self", from_end=True)),
)
def index(cx: Context, self: Tensor, indices: list[Tensor | None], *, out: Tensor) -> None:
    indexed = [(axis, t) for axis, t in enumerate(indices) if t is not None]
    if len(indices) > self.rank or not indexed:
        raise GraphError(
            f"indices: expected 1 to {self.rank} for shape {list(self.dims)}, got {len(indexed)} in a "
            f"list of {len(indices)}",
            code="wrong_length",
        )
    _refuse_masks(*(t for _, t in indexed))
    if len(indexed) == 1:
        ((axis, only),) = indexed
        take_along(cx, self, axis, only, out)
        return
    shape = broadcast(*(t.dims for _, t in indexed))
    axes = [axis for axis, _ in indexed]
    own = strides(self.dims)
    kept = [d for d in range(self.rank) if d not in axes]
    # Neighboring indices leave their shape in their place, scattered ones at the front.
    neighbours = axes == list(range(axes[0], axes[-1] + 1))
    before = [d for d in kept if d < axes[0]] if neighbours else []
    after = kept[len(before) :]
    out.dims = (*(self.dims[d] for d in before), *shape, *(self.dims[d] for d in after))
    if out.numel and not all(self.dims[axis] for axis in axes):
        raise ShapeError(f"an indexed dim of {list(self.dims)} has no elements", code="empty")
    offsets = _offsets(cx, self, indexed, shape)
    steps = (*(own[d] for d in before), *(0,) * len(shape), *(own[d] for d in after))
    index_steps = (*(0,) * len(before), *strides(shape), *(0,) * len(after))
    take(cx, self, offsets, out, size=self.numel, scale=1, x_strides=steps, index_strides=index_steps)


def _offsets(cx: Context, x: Tensor, indexed: list[tuple[int, Tensor]], shape: Dims) -> Tensor:
    """Return the offset in `x` of each combination of indices, in elements."""
    offsets = cx.scratch(DType.INT32, shape)
    own = strides(x.dims)
    for number, (axis, index) in enumerate(indexed):
        dims, (steps,) = coalesce(shape, broadcast_strides(index.dims, shape))
        check_rank(dims)
        params = OffsetsParams(rank=len(dims), size=x.dims[axis], scale=own[axis], dims=dims, strides=steps)
        threads = numel(shape)
        cx.dispatch(
            "indexing/offsets.wgsl",
            reads={"index": index},
            writes={"offsets": offsets},
            params=params,
            threads=threads,
            first=number == 0,
        )
    return offsets


@index.reference
def _(self: Any, indices: list[Any]) -> Any:
    return self[tuple(slice(None) if i is None else i for i in indices)]
