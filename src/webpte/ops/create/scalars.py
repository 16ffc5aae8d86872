"""Integers and other scalars that change from call to call. All of it happens on the host."""

from __future__ import annotations

from ...errors import ShapeError
from ...graph import normalize_dim
from ...graph.expressions import apply
from ...graph.names import ITEM
from ...lowering import dim_rules
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.integers import NO_INTEGERS, added, multiplied, negated, size_of
from ...lowering.registry import MOVABLE, op
from ...lowering.traits import OpTraits


@op(
    "sym_size.int",
    kernels=("aten::sym_size.int",),
    dtypes=MOVABLE,
    traits=OpTraits(dims=dim_rules.size_of("self", "dim"), integers=size_of("self", "dim")),
)
def sym_size(cx: Context, self: Tensor, dim: int, *, out: LiveScalar) -> None:
    out.set(self.dims[normalize_dim(dim, self.rank)])


@op("sym_numel", kernels=("aten::sym_numel",), dtypes=MOVABLE)
def sym_numel(cx: Context, self: Tensor, *, out: LiveScalar) -> None:
    out.set(self.numel)


@op("et_vk.select_as_symint.default", host_args=("x",))
def select_as_symint(cx: Context, x: Tensor, dim: int, index: int, *, out: LiveScalar) -> None:
    axis = normalize_dim(dim, x.rank)
    size = x.dims[axis]
    if not -size <= index < size:
        raise ShapeError(
            argument="index",
            expected=f"an index into dim {dim} of value {x.id}, of size {size}",
            got=index,
            code="index_out_of_range",
        )
    position = [0] * x.rank  # the other dims are pinned to their first element
    position[axis] = index % size
    out.set(cx.element(x, tuple(position)))


@op("_local_scalar_dense", kernels=(ITEM,), host_args=("self",))
def item(cx: Context, self: Tensor, *, out: LiveScalar) -> None:
    if self.numel != 1:
        raise ShapeError(f"value {self.id}: expected 1 element, got {self.numel}", code="not_a_scalar")
    out.set(cx.element(self, (0,) * self.rank))


# The ranges of the results of these functions.
_INTEGERS = {
    "add": added("a", "b"),
    "sub": added("a", "b", sign=-1),
    "mul": multiplied("a", "b"),
    "neg": negated("a"),
}


def _binary(function: str, *names: str, kernel: str) -> None:
    @op(
        *names,
        kernels=(f"executorch_prim::{kernel}.Scalar",),
        traits=OpTraits(integers=_INTEGERS.get(function, NO_INTEGERS)),
    )
    def lower(cx: Context, a: LiveScalar, b: LiveScalar, *, out: LiveScalar) -> None:
        out.set(apply(function, a.term, b.term))


for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "eq", "ge", "gt", "le", "lt"):
    _binary(_name, _name, kernel=_name)
_binary("max", kernel="sym_max")
_binary("min", kernel="sym_min")


def _unary(function: str, kernel: str) -> None:
    @op(kernels=(f"executorch_prim::{kernel}.Scalar",), traits=OpTraits(integers=_INTEGERS.get(function, NO_INTEGERS)))
    def lower(cx: Context, a: LiveScalar, *, out: LiveScalar) -> None:
        out.set(apply(function, a.term))


for _name in ("neg", "ceil", "round", "trunc"):
    _unary(_name, _name)
for _name in ("float", "int", "not"):
    _unary(_name, f"sym_{_name}")


@op(kernels=("executorch_prim::sym_ite.Scalar",))
def sym_ite(cx: Context, condition: LiveScalar, a: LiveScalar, b: LiveScalar, *, out: LiveScalar) -> None:
    out.set(apply("select", condition.term, a.term, b.term))
