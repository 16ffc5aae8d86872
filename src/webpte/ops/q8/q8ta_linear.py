"""Linear layers over int8 codes: weights int8 with a scale per output, results int8 or float.

`linear_q8ta_q8csw` of ExecuTorch 1.0 and 1.1 takes floats and quantizes them itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import OpTraits, sums_over
from ...wgsl import u32
from .q8ta import (
    Q8TA,
    ChannelEpilogue,
    InputOutputQuant,
    InputQuantParams,
    OutputQuantParams,
    Q8Weights,
    QuantParams,
    ScalingParams,
    codes_of,
    numpy_codes,
    numpy_input,
    numpy_values,
    require_codes,
)

ROWS = 4  # output rows one invocation computes when there are several; columns are always 4


class Q8taLinearParams(ScalingParams):
    rows: u32
    inner: u32
    columns: u32
    column_tiles: u32
    first_column: u32  # of the weights that are bound


def _linear(
    cx: Context, x: Tensor, weights: Tensor, ends: InputOutputQuant, channels: ChannelEpilogue, out: Tensor
) -> None:
    """Compute (..., K) x (N, K) -> (..., N)."""
    require_codes(x, weights)
    if weights.rank != 2 or x.dims[-1:] != weights.dims[1:]:
        raise ShapeError(
            f"input {list(x.dims)} and weights {list(weights.dims)} have incompatible shapes", code="operand_mismatch"
        )
    columns, inner = weights.dims
    channels.check(columns)
    out.dims = (*x.dims[:-1], columns)
    rows = out.numel // columns if columns else 0
    words = inner % 4 == 0  # no row ends inside a word
    flags: dict[str, Any] = {"coded": ends.output is not None, "result": out.wgsl, **channels.flags}
    params = {**ends.uniforms, "rows": rows, "inner": inner, "columns": columns}
    if not words or columns % 4:
        cx.dispatch(
            "q8/q8ta_linear_any.wgsl",
            reads={"x": x, "w": weights, **channels.arrays},
            writes={"y": out},
            params=Q8taLinearParams(**params, column_tiles=0, first_column=0),
            threads=-(-out.numel // 4),
            words=words,
            **flags,
        )
        return
    tile = 1 if rows == 1 else ROWS
    for first, count, part in cx.parts(weights, 4 * inner, columns // 4):
        cx.dispatch(
            "q8/q8ta_linear.wgsl",
            reads={"x": x, "w": part, **channels.arrays},
            writes={"y": out},
            params=Q8taLinearParams(**params, column_tiles=count, first_column=4 * first),
            threads=count * -(-rows // tile),
            tile=tile,
            **flags,
        )


@op("et_vk.q8ta_linear.default", "et_vk.q8ta_linear_gemv.default", dtypes=Q8TA, traits=OpTraits(work=sums_over("x")))
def q8ta_linear(
    cx: Context,
    x: Tensor,
    input: InputQuantParams,
    layer: Q8Weights,
    output: OutputQuantParams,
    bias: Tensor | None,
    activation: str,
    *,
    out: Tensor,
) -> None:
    require_codes(out)
    _linear(cx, x, layer.weights, InputOutputQuant(input, output), layer.channels(bias, activation), out)


@q8ta_linear.reference
def _(x: Any, input: QuantParams, layer: Q8Weights, output: QuantParams, bias: Any, activation: str) -> Any:
    return numpy_codes(_values(x, input, layer, bias, activation), output)


@op("et_vk.linear_q8ta_q8csw.default", dtypes=Q8TA, traits=OpTraits(work=sums_over("x")))
def linear_q8ta_q8csw(
    cx: Context,
    x: Tensor,
    input: InputQuantParams,
    layer: Q8Weights,
    bias: Tensor | None,
    *,
    out: Tensor,
) -> None:
    if out.dtype not in FLOATS:
        raise GraphError(
            f"value {out.id} {out.spec}: expected a float",
            hint="ExecuTorch 1.5 stores a wrong dtype if the layer has no bias. Give the layer a bias "
            "(zeros suffice), or quantize its results.",
            code="dtype",
        )
    _linear(cx, codes_of(cx, x, input), layer.weights, InputOutputQuant(input), layer.channels(bias), out)


@linear_q8ta_q8csw.reference
def _(x: Any, input: QuantParams, layer: Q8Weights, bias: Any) -> Any:
    return _values(numpy_input(x, input), input, layer, bias, "none")


def _values(x: Any, input: QuantParams, layer: Q8Weights, bias: Any, activation: str) -> Any:
    weights: Any = layer.weights
    sums = (x.astype(np.int64) - input.zero_point) @ weights.astype(np.int64).T
    return numpy_values(sums, input.scale, layer.weight_scales, bias, activation)
