"""Matrix products: linear, mm, bmm, addmm, baddbmm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ...graph import numel
from ...graph.names import MATMUL
from ...lowering import dim_rules
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.shapes import broadcast, broadcast_strides, strides
from ...lowering.traits import OpTraits, sums_over
from .epilogue import NO_EPILOGUE, STORED, CompiledEpilogue, Epilogue, applied
from .product import (
    Addend,
    MatrixStrides,
    ProductLayout,
    ProductShape,
    contiguous,
    product,
)


def project(
    cx: Context,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    epilogue: CompiledEpilogue = STORED,
) -> None:
    """Compute (M, K) x (N, K) -> (M, N). The dims come from `weight`: N is the first, K the product of the others."""
    columns = weight.dims[0]
    inner = numel(weight.dims[1:])
    rows = out.numel // columns if columns else 0
    shape = ProductShape(1, rows, inner, columns)
    addend = Addend(bias, (0, 0, 1)) if bias is not None else None
    layout = contiguous(shape, by_rows=True)
    product(cx, x, weight, out, shape, layout, addend=addend, epilogue=epilogue)


def _linear(
    cx: Context, input: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, epilogue: Epilogue = NO_EPILOGUE
) -> None:
    if weight.rank != 2 or input.dims[-1:] != weight.dims[1:]:
        raise ShapeError(
            f"input {list(input.dims)} and weight {list(weight.dims)} have incompatible shapes", code="operand_mismatch"
        )
    columns = weight.dims[0]
    if bias is not None and bias.dims != (columns,):
        raise ShapeError(
            f"bias {list(bias.dims)} and weight {list(weight.dims)} have incompatible shapes", code="operand_mismatch"
        )
    dims = (*input.dims[:-1], columns)  # (..., K) x (N, K) -> (..., N)
    out.dims = epilogue.shape(dims)
    compiled = epilogue.compile(input.dtype, dims, (0, len(dims) - 1))
    project(cx, input, weight, bias, out, epilogue=compiled)


@op(
    "aten.linear.default",
    dtypes=FLOATS,
    traits=OpTraits(work=sums_over("input"), dims=dim_rules.linear("input", "weight")),
)
def linear(cx: Context, input: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor) -> None:
    _linear(cx, input, weight, bias, out)


@op("webpte.linear", traits=OpTraits(work=sums_over("input")))
def linear_with_epilogue(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    epilogue: Epilogue,
    *,
    out: Tensor,
) -> None:
    _linear(cx, input, weight, bias, out, epilogue)


@linear.reference
def _linear_reference(input: Any, weight: Any, bias: Any) -> Any:
    total = np.einsum("...k,nk->...n", *_wide(input, weight))
    return (total if bias is None else total + bias).astype(input.dtype)


@linear_with_epilogue.reference
def _(input: Any, weight: Any, bias: Any, epilogue: Epilogue) -> Any:
    return applied([_linear_reference(input, weight, bias)], epilogue)


class MatmulAxes(NamedTuple):
    """The letters of both factors and the product, as einsum has them: batch, head, m, n, k. Columns come last."""

    a: str = "bhmk"
    b: str = "bhkn"
    y: str = "bhmn"

    @staticmethod
    def parse(text: str) -> MatmulAxes:
        return MatmulAxes(*text.replace("->", ",").split(","))

    def __str__(self) -> str:
        return f"{self.a},{self.b}->{self.y}"


PLAIN = MatmulAxes()


class MatmulProblem(NamedTuple):
    """A product of matrices whose layout is described by axes."""

    shape: ProductShape
    layout: ProductLayout
    dims: Dims  # of the result: (B, M, N), or (M, N) of matrices
    y_dims: Dims  # in the order of its letters


def _lay(axes: MatmulAxes, mat1: Dims, mat2: Dims) -> MatmulProblem:
    split = [dims[letters.index("h")] for dims, letters in ((mat1, axes.a), (mat2, axes.b)) if len(dims) == 4]
    heads = split[0] if split else 1
    a_dims, b_dims = _four(mat1, axes.a, heads), _four(mat2, axes.b, heads)
    size = dict(zip(axes.a, a_dims, strict=True)) | dict(zip(axes.b, b_dims, strict=True))
    if any(size[c] != d for c, d in zip(axes.a, a_dims, strict=True)):
        raise ShapeError(f"{list(mat1)} cannot be multiplied by {list(mat2)} as {axes}", code="operand_mismatch")
    y_dims = tuple(size[c] for c in axes.y)
    shape = ProductShape(size["b"] * heads, size["m"], size["k"], size["n"])
    a, b, y = (_strided(c, d) for c, d in zip(axes, (a_dims, b_dims, y_dims), strict=True))
    layout = ProductLayout(a, b, y, by_rows=axes.b[-1] == "k", heads=heads)
    return MatmulProblem(shape, layout, (shape.batch, shape.rows, shape.columns)[-min(len(mat1), 3) :], y_dims)


def _four(dims: Dims, letters: str, heads: int) -> Dims:
    """Return the dims for four letters. A matrix has no batch; of three dims the first has all heads."""
    batch = dims[0] if len(dims) == 3 else 1
    if len(dims) == 4:
        return dims
    if len(dims) not in (2, 3) or letters[:2] != "bh" or batch % heads:
        raise ShapeError(
            f"a tensor of shape {list(dims)} does not have axes {letters} with {heads} heads", code="operand_mismatch"
        )
    return (batch // heads, heads, *dims[-2:])


def _strided(letters: str, dims: Dims) -> MatrixStrides:
    steps = dict(zip(letters, strides(dims), strict=True))
    (row,) = set(letters[:-1]) - {"b", "h"}
    return MatrixStrides(steps["b"], steps["h"], steps[row])


def _multiply(
    cx: Context,
    added: Tensor | None,
    mat1: Tensor,
    mat2: Tensor,
    beta: float,
    alpha: float,
    out: Tensor,
    axes: MatmulAxes = PLAIN,
    epilogue: Epilogue = NO_EPILOGUE,
) -> None:
    """Compute alpha * mat1 @ mat2 + beta * added."""
    shape, layout, dims, y_dims = _lay(axes, mat1.dims, mat2.dims)
    addend = None
    if added is not None and beta != 0:  # with beta = 0 PyTorch does not read it: its NaNs do not count
        if broadcast(added.dims, dims) != dims:
            raise ShapeError(f"{list(added.dims)} does not broadcast to the product {list(dims)}", code="broadcast")
        addend = Addend(added, (0, 0, 0, *broadcast_strides(added.dims, dims))[-3:], float(beta))
    result_dims = y_dims if out.rank == 4 else dims
    out.dims = epilogue.shape(result_dims)
    compiled = epilogue.compile(mat1.dtype, dims, (len(dims) - 2, len(dims) - 1))
    product(cx, mat1, mat2, out, shape, layout, addend=addend, alpha=float(alpha), epilogue=compiled)


@op(
    "aten.mm.default",
    "aten.bmm.default",
    dtypes=FLOATS,
    traits=OpTraits(work=sums_over("self"), dims=dim_rules.matmul("self", "mat2")),
)
def matmul(cx: Context, self: Tensor, mat2: Tensor, *, out: Tensor) -> None:
    _multiply(cx, None, mat1=self, mat2=mat2, beta=0.0, alpha=1.0, out=out)


@matmul.reference
def _(self: Any, mat2: Any) -> Any:
    return _addmm_reference(None, self, mat2, 0, 1)


@op(
    "aten.addmm.default",
    "aten.baddbmm.default",
    dtypes=FLOATS,
    traits=OpTraits(work=sums_over("mat1"), dims=dim_rules.matmul("mat1", "mat2")),
)
def addmm(
    cx: Context, self: Tensor, mat1: Tensor, mat2: Tensor, beta: int | float, alpha: int | float, *, out: Tensor
) -> None:
    _multiply(cx, self, mat1=mat1, mat2=mat2, beta=beta, alpha=alpha, out=out)


@addmm.reference
def _addmm_reference(self: Any, mat1: Any, mat2: Any, beta: float, alpha: float) -> Any:
    if mat1.dtype.kind != "f":  # PyTorch converts the factors of integers, too
        alpha, beta = int(alpha), int(beta)
    total = alpha * np.einsum("...mk,...kn->...mn", *_wide(mat1, mat2))
    return (total if self is None or beta == 0 else total + beta * _wide(self)[0]).astype(mat1.dtype)


@op(MATMUL)
def laid_out_matmul(
    cx: Context,
    axes: str,
    self: Tensor | None,
    mat1: Tensor,
    mat2: Tensor,
    beta: int | float,
    alpha: int | float,
    epilogue: Epilogue,
    *,
    out: Tensor,
) -> None:
    _multiply(
        cx, self, mat1=mat1, mat2=mat2, beta=beta, alpha=alpha, out=out, axes=MatmulAxes.parse(axes), epilogue=epilogue
    )


@laid_out_matmul.reference
def _(axes: str, self: Any, mat1: Any, mat2: Any, beta: float, alpha: float, epilogue: Epilogue) -> Any:
    letters = MatmulAxes.parse(axes)
    laid = _lay(letters, mat1.shape, mat2.shape)
    a, b = (m.reshape(_four(m.shape, c, laid.layout.heads)) for m, c in ((mat1, letters.a), (mat2, letters.b)))
    whole = alpha * np.einsum(f"{letters.a},{letters.b}->bhmn", *_wide(a, b))  # (B, H, M, N)
    total = whole.reshape(laid.dims)
    if self is not None and beta != 0:
        total = total + beta * self.astype(np.float64)
    total = total.astype(mat1.dtype)
    if epilogue.program is not None:
        return applied([total], epilogue)
    return total if letters.y == PLAIN.y else np.einsum(f"bhmn->{letters.y}", total.reshape(whole.shape))


def _wide(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays in 64 bits; integers stay integers, which wrap as in PyTorch."""
    return tuple(a.astype(np.float64 if a.dtype.kind == "f" else np.int64) for a in arrays)
