"""Copies, casts, and constants. A copy that changes nothing is an alias and costs nothing.

Prepack turns a serialized constant into a GPU tensor. For row-major buffers it is an identity, so nothing runs on the
device: one transfer fills `out` from the file, after every op has been lowered and before the first call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DataError, ShapeError
from ...graph import Call, Graph, TensorSpec
from ...graph.names import COPY
from ...lowering import dim_rules
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.formulas import copied
from ...lowering.integers import all_of, converted
from ...lowering.registry import BYTES, FLOATS, MOVABLE, TensorOptions, Unused, op
from ...lowering.shapes import broadcast, broadcast_strides, strides, walk
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, dims8, u32
from ..create.fill import numpy_dtype
from .strided import gather


class CastParams(Uniforms):
    rank: u32
    dims: dims8
    a_strides: dims8


class CastBytesParams(Uniforms):
    count: u32


def copy_into(cx: Context, x: Tensor, out: Tensor) -> None:
    """Copy `x` to `out` in flat order, converted to its dtype. The caller sets `out.dims`."""
    if x.dtype is not out.dtype and not BYTES.isdisjoint((x.dtype, out.dtype)):
        _cast_bytes(cx, x, out)
    elif x.dtype is not out.dtype:
        _cast(cx, x, out, CastParams(rank=0, dims=(), a_strides=()), flat=True)
    elif not cx.alias(out, x):
        gather(cx, x, out, strides(out.dims))


def expand_into(cx: Context, x: Tensor, out: Tensor) -> None:
    """Copy `x` to `out`, repeated to its dims and converted to its dtype."""
    same = x.bound == out.bound  # then no dim repeats, at any live shape
    if (x.dims if same else broadcast(x.dims, out.dims)) != out.dims:
        raise ShapeError(f"{list(x.dims)} does not broadcast to {list(out.dims)}", code="broadcast")
    if same:
        copy_into(cx, x, out)
    elif x.dtype is out.dtype:
        gather(cx, x, out, broadcast_strides(x.dims, out.dims))
    else:
        walked = walk(out, x)
        _cast(cx, x, out, CastParams(rank=walked.rank, dims=walked.dims, a_strides=walked.layouts[0]), walked.flat)


def _cast(cx: Context, x: Tensor, out: Tensor, params: CastParams, flat: bool) -> None:
    cx.dispatch(
        "layout/cast.wgsl",
        reads={"a_data": x},
        writes={"y": out},
        params=params,
        threads=out.numel,
        source=x.dtype.short,
        target=out.dtype.short,
        flat=flat,
    )


def _cast_bytes(cx: Context, x: Tensor, out: Tensor) -> None:
    cx.dispatch(
        "layout/cast_bytes.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=CastBytesParams(count=out.numel),
        threads=-(-out.numel // 4),
        source=x.dtype.short,
        target=out.dtype.short,
    )


def _floats_to_bytes(call: Call, graph: Graph) -> bool:
    """Return whether floats become bytes. A number beyond the range has no defined byte, so the CPU decides."""
    specs = [graph.values[value_id] for value_id in (*call.args[:1], *call.outs)]
    dtypes = [spec.dtype for spec in specs if isinstance(spec, TensorSpec)]
    return len(dtypes) == 2 and dtypes[0] in FLOATS and dtypes[1] in BYTES


@op(COPY, dtypes=MOVABLE, traits=OpTraits(dims=dim_rules.like("self"), elementwise=copied, integers=all_of("self")))
def move(cx: Context, self: Tensor | LiveScalar, *, out: Tensor | LiveScalar) -> None:
    if isinstance(self, LiveScalar) and isinstance(out, LiveScalar):
        out.set(self.term)
    elif isinstance(self, Tensor) and isinstance(out, Tensor):
        out.dims = self.dims
        copy_into(cx, self, out)
    else:
        raise TypeError("source and target must both be tensors or both be scalars")


@move.reference
def _(self: Any) -> Any:
    return np.array(self)


@op("aten.clone.default", dtypes=MOVABLE, traits=OpTraits(view="self", dims=dim_rules.like("self"), elementwise=COPY))
def clone(cx: Context, self: Tensor, memory_format: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    copy_into(cx, self, out)


@clone.reference
def _(self: Any, memory_format: object) -> Any:
    return np.array(self)


@op(
    "aten.alias_copy.default",
    "aten.detach_copy.default",
    "aten.lift_fresh_copy.default",
    dtypes=MOVABLE,
    traits=OpTraits(view="self", dims=dim_rules.like("self"), elementwise=COPY),
)
def alias_copy(cx: Context, self: Tensor, *, out: Tensor) -> None:
    out.dims = self.dims
    copy_into(cx, self, out)


@alias_copy.reference
def _(self: Any) -> Any:
    return np.array(self)


@op(
    "dim_order_ops._clone_dim_order.default",
    dtypes=MOVABLE,
    traits=OpTraits(view="self", dims=dim_rules.like("self"), elementwise=COPY),
)
def clone_dim_order(cx: Context, self: Tensor, non_blocking: Unused, dim_order: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    copy_into(cx, self, out)


@clone_dim_order.reference
def _(self: Any, non_blocking: object, dim_order: object) -> Any:
    return np.array(self)


# The last argument is the memory format of the one and the dim order of the other: tensors are row-major here.
@op(
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    dtypes=MOVABLE,
    unsupported_if=_floats_to_bytes,
    traits=OpTraits(dims=dim_rules.like("self"), elementwise=COPY, integers=converted("self")),
)
def to_copy(
    cx: Context,
    self: Tensor,
    options: TensorOptions,
    non_blocking: Unused,
    order: Unused,
    *,
    out: Tensor,
) -> None:
    out.dims = self.dims
    copy_into(cx, self, out)


@to_copy.reference
def _(self: Any, options: Any, non_blocking: object, order: object) -> Any:
    with np.errstate(over="ignore"):
        return self.astype(numpy_dtype(options.dtype, self.dtype))


@op("aten.copy.default", traits=OpTraits(integers=all_of("src")))
def copy(cx: Context, self: Tensor, src: Tensor, non_blocking: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    expand_into(cx, src, out)


@op(kernels=("aten::copy_",), traits=OpTraits(mutates=("self",)))
def copy_(cx: Context, self: Tensor, src: Tensor, non_blocking: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    if src.id != self.id:  # a dispatch may not bind a buffer for reading and for writing
        expand_into(cx, src, out)


@copy.reference
@copy_.reference
def _(self: Any, src: Any, non_blocking: object) -> Any:
    return np.broadcast_to(src, self.shape).astype(self.dtype)


@op("et_vk.prepack.default", dtypes=MOVABLE, traits=OpTraits(dims=dim_rules.like("x"), integers=all_of("x")))
def prepack(cx: Context, x: Tensor, *, out: Tensor) -> None:
    source = x.spec.constant
    if source is None:
        raise DataError(f"value {x.id} {x.spec} has no constant data for value {out.id} {out.spec}", code="no_constant")
    if x.bound != out.bound or x.dtype is not out.dtype:
        raise DataError(
            f"value {x.id} {x.spec} and value {out.id} {out.spec} differ in shape or dtype", code="mismatch"
        )
    out.dims = x.dims
    cx.materialize(out, source)


@prepack.reference
def _(x: Any) -> Any:
    return x
