"""Rows written at the positions of an index tensor: index_put, index_copy and assignments such as `cache[:, i] = x`.

One index along one dim stays on the device; several, masks and sums are the CPU's. Where an index occurs twice the last
one counts, as it does on the CPU. An index outside the dim is not written: plan/indices.py reports it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import Bool, Call, DType, Graph, Int, Null, TensorSpec
from ...lowering.context import Context, Tensor
from ...lowering.registry import op
from ...lowering.shapes import broadcast, broadcast_strides, check_rank, coalesce, strides
from ...lowering.traits import Indexing, OpTraits
from ...wgsl import Uniforms, dims8, u32
from ..layout.strided import gather, word


class IndexPutParams(Uniforms):
    rank: u32
    size: u32  # number of places along the indexed dim
    scale: u32  # elements from one place to the next
    count: u32  # number of indices
    dims: dims8
    strides: dims8
    index_strides: dims8
    value_strides: dims8


def _left_to_the_cpu(call: Call, graph: Graph) -> bool:
    """Return whether a call needs the CPU: it has other than one index of integers, or accumulates."""
    if len(call.args) != 4:  # reported elsewhere
        return False
    accumulate = graph.values[call.args[3]]
    indices = [graph.values[v] for v in graph.flatten(call.args[1:2])]
    present = [spec for spec in indices if not isinstance(spec, Null)]
    single = len(present) == 1 and isinstance(present[0], TensorSpec) and present[0].dtype is DType.INT32
    return not single or not isinstance(accumulate, (Bool, Int)) or bool(accumulate.value)


POSITIONS = Indexing(index="indices", tensor="self", from_end=True)


@op("aten.index_put.default", unsupported_if=_left_to_the_cpu, traits=OpTraits(indexing=POSITIONS))
def index_put(
    cx: Context, self: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool, *, out: Tensor
) -> None:
    out.dims = self.dims
    gather(cx, self, out, strides(self.dims))
    _put(cx, indices, values, out)


@op(
    kernels=("aten::index_put_",),
    unsupported_if=_left_to_the_cpu,
    traits=OpTraits(mutates=("self",), indexing=POSITIONS),
)
def index_put_(
    cx: Context, self: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool, *, out: Tensor
) -> None:
    out.dims = self.dims
    _put(cx, indices, values, out)


def _put(cx: Context, indices: list[Tensor | None], values: Tensor, out: Tensor) -> None:
    ((axis, index),) = [(axis, t) for axis, t in enumerate(indices) if t is not None]
    if len(indices) > out.rank or values.dtype is not out.dtype:
        raise GraphError(
            f"index_put: {len(indices)} indices and values {values!r} do not fit {out!r}", code="operand_mismatch"
        )
    outer, inner = out.dims[:axis], out.dims[axis + 1 :]
    written = (*outer, *index.dims, *inner)
    if broadcast(values.dims, written) != written:
        raise ShapeError(
            f"values {list(values.dims)} do not broadcast to the indexed shape {list(written)} of {list(out.dims)}",
            code="operand_mismatch",
        )
    own = strides(out.dims)
    steps = (*own[:axis], *(0,) * index.rank, *own[axis + 1 :])
    index_steps = (*(0,) * len(outer), *strides(index.dims), *(0,) * len(inner))
    dims, layouts = coalesce(written, steps, index_steps, broadcast_strides(values.dims, written))
    check_rank(dims)
    fields = dict(zip(("strides", "index_strides", "value_strides"), layouts, strict=True))
    params = IndexPutParams(
        rank=len(dims), size=out.dims[axis], scale=own[axis], count=index.numel, dims=dims, **fields
    )
    threads = int(np.prod(written, dtype=np.int64))
    cx.dispatch(
        "indexing/index_put.wgsl",
        reads={"x": values, "index": index},
        writes={"y": out},
        params=params,
        threads=threads,
        word=word(out),
    )


@index_put.reference
@index_put_.reference
def _(self: Any, indices: list[Any], values: Any, accumulate: bool) -> Any:
    result = np.array(self)
    where: Any = tuple(slice(None) if i is None else i for i in indices)
    if accumulate:
        np.add.at(result, where, values)
    else:
        result[where] = values
    return result
