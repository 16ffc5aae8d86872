"""Choosing scale and zero point from the data: for a whole tensor, or for each token."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, Unused, op
from ...wgsl import Uniforms, f32, u32

CHOOSING = FLOATS | {DType.INT32}
RUN = 256  # elements of an invocation
MAX_RUNS_PER_ROW = 256  # per row, so that joining them stays short
F32_EPS = float(np.finfo(np.float32).eps)


class RowRangeParams(Uniforms):
    width: u32  # elements of a row
    runs: u32  # invocations that share a row


class ChooseQparamsParams(Uniforms):
    runs: u32
    lowest: f32
    highest: f32
    eps: f32


def _choose(
    cx: Context,
    x: Tensor,
    rows: int,
    width: int,
    limits: tuple[int, int],
    eps: float,
    balanced: bool,
    out: tuple[Tensor, Tensor],
) -> None:
    """Compute a scale and a zero point for each of `rows` runs of `width` elements."""
    if width == 0:
        raise ShapeError(f"{list(x.dims)} has no elements to compute a scale from", code="empty")
    scale, zero = out
    runs = min(max(width // RUN, 1), MAX_RUNS_PER_ROW)
    ranges = cx.scratch(DType.FLOAT32, (rows, runs, 2))
    cx.dispatch(
        "quantize/qparams_range.wgsl",
        reads={"x": x},
        writes={"ranges": ranges},
        params=RowRangeParams(width=width, runs=runs),
        threads=rows * runs,
        type=x.wgsl,
    )
    lowest, highest = limits
    cx.dispatch(
        "quantize/qparams.wgsl",
        reads={"ranges": ranges},
        writes={"scales": scale, "zeros": zero},
        params=ChooseQparamsParams(runs=runs, lowest=lowest, highest=highest, eps=eps),
        threads=rows,
        balanced=balanced,
        scale_type=scale.wgsl,
    )


@op(
    "quantized_decomposed.choose_qparams.tensor",
    kernels=("quantized_decomposed::choose_qparams.Tensor_out",),
    dtypes=CHOOSING,
)
def choose_qparams(
    cx: Context,
    input: Tensor,
    quant_min: int,
    quant_max: int,
    eps: float,
    dtype: Unused,
    *,
    out: tuple[Tensor, Tensor],
) -> None:
    scale, zero = out
    scale.dims = zero.dims = (1,)
    _choose(cx, input, rows=1, width=input.numel, limits=(quant_min, quant_max), eps=eps, balanced=False, out=out)


@choose_qparams.reference
def _(input: Any, quant_min: int, quant_max: int, eps: float, dtype: object) -> tuple[Any, Any]:
    values = input.astype(np.float32)
    least, greatest = np.minimum(values.min(), np.float32(0)), np.maximum(values.max(), np.float32(0))
    scale = np.maximum((greatest - least) / np.float32(quant_max - quant_min), np.float32(eps))
    zero = np.clip(quant_min - np.round(least / scale).astype(np.int64), quant_min, quant_max)
    return scale.reshape(1).astype(np.float64), zero.reshape(1)


@op(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    kernels=("quantized_decomposed::choose_qparams_per_token_asymmetric.out",),
    dtypes=CHOOSING,
)
def choose_qparams_per_token_asymmetric(
    cx: Context, input: Tensor, dtype: Unused, *, out: tuple[Tensor, Tensor]
) -> None:
    if input.rank == 0:
        raise ShapeError(argument="input", expected="at least 1 dim", got="a scalar", code="rank")
    scale, zero = out
    scale.dims = zero.dims = (*input.dims[:-1], 1)  # (..., K) -> (..., 1)
    _choose(
        cx,
        input,
        rows=numel(input.dims[:-1]),
        width=input.dims[-1],
        limits=(-128, 127),
        eps=F32_EPS,
        balanced=True,
        out=out,
    )


@choose_qparams_per_token_asymmetric.reference
def _(input: Any, dtype: object) -> tuple[Any, Any]:
    values = input.astype(np.float32)
    least = np.minimum(values.min(-1, keepdims=True), np.float32(0))
    greatest = np.maximum(values.max(-1, keepdims=True), np.float32(0))
    scale = np.maximum((greatest - least) / np.float32(255), np.float32(F32_EPS))
    below, above = least / scale, greatest / scale
    # Whichever end of the range the zero point represents with the smaller error decides it.
    by_least = (-128 + below) + (127 + above) > 0
    zero = np.round(np.clip(np.where(by_least, -128 - below, 127 - above), -128, 127))
    return scale.astype(np.float64), zero.astype(np.int64)
