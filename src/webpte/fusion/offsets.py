"""Fuse 4-bit linear layers with the product that adds an offset to the weights of each group.

    y = linear_q4gsw(x, codes, scales) + mm(sums of the groups of x, dequantize_per_channel(offsets))

is a layer whose weights are `scale * code + offset`. A kernel sums the groups while it reads x.
"""

from __future__ import annotations

from ..graph import Bool, Constant, DType, Graph, Int, IntList, Null, TensorSpec
from ..graph.names import INT8, PREPACK
from .dims import SymbolicDims
from .linears import QuantizedLinear, fused_call, quantized_linears, tensor_spec
from .norms import other_term
from .pieces import MismatchError, Pieces, piece, require
from .rewriter import Rewriter, roles

PATTERN = {
    "view": ("aten.view_copy.default",),
    "sum": ("aten.sum.dim_IntList",),
    "product": ("aten.mm.default",),
    "dequantize": ("quantized_decomposed.dequantize_per_channel.default",),
    "prepack": (PREPACK,),
}
ROLES = roles(PATTERN)
COLUMN_MULTIPLE = 4  # a word has the offsets of four columns
ADDED = piece(
    "product",
    self=piece("sum", self=piece("view", "groups", self="x"), dim="axes", keepdim=Bool(False)),
    mat2=piece("dequantize", input="codes", scales="scales", zero_points="zeros", axis=Int(1)),
)


def offset_linears(graph: Graph) -> Graph:
    """Fuse the sums of groups, their product with offsets and the addition into the 4-bit layer of the same input."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims, pieces = SymbolicDims(graph), Pieces(rewriter, ROLES)
    for linear in quantized_linears(rewriter):
        user = rewriter.only_user(linear.out)
        if user is None or linear.format == INT8 or linear.qparams or linear.offsets is not None:
            continue
        at, call = user
        added = other_term(rewriter, call, linear.out, dims)
        if added is None or rewriter.only_user(added) is None:
            continue
        try:
            offsets = rewriter.add(_offsets(pieces, linear, added))
        except MismatchError:
            continue
        rewriter.replace([linear.index, at], fused_call(rewriter, [linear], call.outs, offsets=offsets), at)
    rewriter.drop_unread(ROLES)
    return rewriter.result()


def _offsets(pieces: Pieces, linear: QuantizedLinear, added: int) -> TensorSpec:
    """Return the offsets of a layer as bytes: codes (G, N), and then a scale for each column."""
    ids: dict[str, int] = {"x": linear.x}
    pieces.match(pieces.unviewed(added), ADDED, ids)
    values, group = pieces.rewriter.values, linear.group
    size = group.value if isinstance(group, Int) else 0
    split, columns = pieces.tensor(ids["groups"]).dims, pieces.tensor(linear.codes).dims[0]
    inner = pieces.tensor(linear.x).dims[-1]
    require(size > 0 and inner % size == 0 and split[-2:] == (inner // size, size))
    require(values[ids["axes"]] in (IntList((-1,)), IntList((len(split) - 1,))))
    codes, scales = (_stored(pieces, ids[name]) for name in ("codes", "scales"))
    require((codes.dims, scales.dims) == ((inner // size, columns), (columns,)) and columns % COLUMN_MULTIPLE == 0)
    require(isinstance(values[ids["zeros"]], Null) or not pieces.constant(ids["zeros"]).any())
    assert codes.constant is not None and scales.constant is not None
    require((codes.constant.dtype, scales.constant.dtype) == (DType.INT8, DType.FLOAT32))
    name = f"{codes.constant.name} + {scales.constant.name}"
    constant = Constant(codes.constant.span, DType.INT8, name, (scales.constant.span,))
    return TensorSpec(DType.INT8, (constant.nbytes,), DType.INT8, constant=constant)


def _stored(pieces: Pieces, value_id: int) -> TensorSpec:
    """Return a constant that is one span of the file, stored or prepacked."""
    rewriter = pieces.rewriter
    producer = rewriter.producer(value_id)
    source = value_id if producer is None or ROLES.get(producer[1].name) != "prepack" else producer[1].args[0]
    spec = tensor_spec(rewriter, source)
    require(rewriter.is_immutable(source) and spec.constant is not None and not spec.constant.rest)
    return spec
