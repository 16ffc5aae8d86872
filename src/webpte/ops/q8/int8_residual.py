"""Layers over int8 codes that add a residual to their codes: what fusion/codes.py makes of a layer and a sum."""

from __future__ import annotations

from typing import Annotated, Any

from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import op
from ...lowering.traits import OpTraits, sums_over
from .int8_convolution import (
    LAYER_DTYPES,
    POINT,
    CodeLimits,
    FixedPointSum,
    Int8Layer,
    Int8Window,
    Residual,
    convolution_flops,
    numpy_convolution,
    numpy_linear,
    out_dims,
    run_layer,
)


@op(
    "webpte.int8_convolution_add",
    dtypes=LAYER_DTYPES,
    traits=OpTraits(work=convolution_flops, dims=dim_rules.like("residual")),
)
def int8_convolution_add(
    cx: Context,
    x: Tensor,
    layer: Int8Layer,
    codes: CodeLimits,
    window: Int8Window,
    residual: Tensor,
    sums: Annotated[FixedPointSum, "sum_"],
    sum_codes: Annotated[CodeLimits, "sum_"],
    *,
    out: Tensor,
) -> None:
    out.dims = out_dims(x, window, layer.scales.numel)
    run_layer(cx, x, layer=layer, codes=codes, window=window, out=out, residual=Residual(residual, sums, sum_codes))


@op(
    "webpte.int8_linear_add", dtypes=LAYER_DTYPES, traits=OpTraits(work=sums_over("x"), dims=dim_rules.like("residual"))
)
def int8_linear_add(
    cx: Context,
    x: Tensor,
    layer: Int8Layer,
    codes: CodeLimits,
    residual: Tensor,
    sums: Annotated[FixedPointSum, "sum_"],
    sum_codes: Annotated[CodeLimits, "sum_"],
    *,
    out: Tensor,
) -> None:
    out.dims = (*x.dims[:-1], layer.scales.numel)
    run_layer(cx, x, layer=layer, codes=codes, window=POINT, out=out, residual=Residual(residual, sums, sum_codes))


@int8_linear_add.reference
def _(x: Any, layer: Int8Layer, codes: CodeLimits, residual: Any, sums: FixedPointSum, sum_codes: CodeLimits) -> Any:
    return sum_codes.numpy(sums.numpy(numpy_linear(x, layer, codes), residual))


@int8_convolution_add.reference
def _(
    x: Any,
    layer: Int8Layer,
    codes: CodeLimits,
    window: Int8Window,
    residual: Any,
    sums: FixedPointSum,
    sum_codes: CodeLimits,
) -> Any:
    return sum_codes.numpy(sums.numpy(numpy_convolution(x, layer, codes, window), residual))
