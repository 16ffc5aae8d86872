"""Elementwise ops over int8 codes, and the shuffle that requantizes the codes it moves."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import op
from ...lowering.shapes import broadcast, check_rank, coalesce, strides, walk
from ...wgsl import Uniforms, dims8, f32, u32
from ..quantize.quantize import numpy_dequantize
from .q8ta import InputQuantParams, OutputQuantParams, QuantParams, numpy_codes

CODES = frozenset({DType.INT8})


class Q8taAddParams(Uniforms):
    count: u32
    rank: u32
    a_scale: f32
    a_zero: f32
    b_scale: f32
    b_zero: f32
    alpha: f32
    inverse: f32  # of the output's scale
    zero: f32
    dims: dims8
    a_strides: dims8
    b_strides: dims8


@op("et_vk.q8ta_add.default", "et_vk.add_q8ta_q8ta_q8to.default", dtypes=CODES)  # the second in ExecuTorch 1.1
def q8ta_add(
    cx: Context,
    input_a: Tensor,
    input_b: Tensor,
    a: Annotated[QuantParams, "input_a_"],
    b: Annotated[QuantParams, "input_b_"],
    output: OutputQuantParams,
    alpha: float,
    *,
    out: Tensor,
) -> None:
    out.dims = broadcast(input_a.dims, input_b.dims)
    walked = walk(out, input_a, input_b)
    params = Q8taAddParams(
        count=out.numel,
        rank=walked.rank,
        a_scale=a.scale,
        a_zero=a.zero_point,
        b_scale=b.scale,
        b_zero=b.zero_point,
        alpha=alpha,
        inverse=1.0 / output.scale,
        zero=output.zero_point,
        dims=walked.dims,
        a_strides=walked.layouts[0],
        b_strides=walked.layouts[1],
    )
    cx.dispatch(
        "q8/q8ta_add.wgsl",
        reads={"a": input_a, "b": input_b},
        writes={"y": out},
        params=params,
        threads=-(-out.numel // 4),
        flat=walked.flat,
    )


@q8ta_add.reference
def _(input_a: Any, input_b: Any, a: QuantParams, b: QuantParams, output: QuantParams, alpha: float) -> Any:
    left, right = _numbers(input_a, a), _numbers(input_b, b)
    return numpy_codes(left + np.float32(alpha) * right, output)


def _numbers(codes: Any, coding: QuantParams) -> Any:
    return numpy_dequantize(codes, coding.scale, coding.zero_point)


class RequantizeParams(Uniforms):
    count: u32
    rank: u32
    x_scale: f32
    x_zero: f32
    inverse: f32  # of the output's scale
    zero: f32
    dims: dims8
    x_strides: dims8


class Requantization(NamedTuple):
    """The scale and zero point of codes, and the inverse scale and zero point of the new codes."""

    x_scale: float
    x_zero: int
    inverse: float
    zero: int


def _requantize(
    cx: Context, x: Tensor, out: Tensor, change: Requantization, walked: Dims, steps: Dims, relu: bool = False
) -> None:
    """Requantize `x`, read with the strides `steps` over the dims `walked` of `out`."""
    dims, (layout,) = coalesce(walked, steps)
    check_rank(dims)
    params = RequantizeParams(count=out.numel, rank=len(dims), dims=dims, x_strides=layout, **change._asdict())
    cx.dispatch(
        "q8/q8ta_requantize.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=params,
        threads=-(-out.numel // 4),
        flat=layout == strides(dims),
        relu=relu,
    )


@op("et_vk.q8ta_relu.default", dtypes=CODES)
def q8ta_relu(cx: Context, input: Tensor, quant: InputQuantParams, output: OutputQuantParams, *, out: Tensor) -> None:
    out.dims = input.dims
    change = Requantization(quant.scale, quant.zero_point, 1.0 / output.scale, output.zero_point)
    _requantize(cx, input, out, change, out.dims, strides(out.dims), relu=True)


@q8ta_relu.reference
def _(input: Any, quant: QuantParams, output: QuantParams) -> Any:
    return numpy_codes(np.maximum(_numbers(input, quant), np.float32(0)), output)


@op("et_vk.q8ta_pixel_shuffle.default", dtypes=CODES)
def q8ta_pixel_shuffle(
    cx: Context,
    input: Tensor,
    quant: InputQuantParams,
    output_inv_scale: float,
    output_zero_point: int,
    upscale_factor: int,
    *,
    out: Tensor,
) -> None:
    r = upscale_factor
    if input.rank < 3 or r < 1 or input.dims[-3] % (r * r):
        raise ShapeError(
            f"the channels of {list(input.dims)} are not a multiple of the squared upscale factor {r}",
            code="operand_mismatch",
        )
    *outer, channels, height, width = input.dims
    out.dims = (*outer, channels // (r * r), height * r, width * r)
    *rest, ry, rx, y, x = strides((*outer, channels // (r * r), r, r, height, width))
    walked = (*outer, channels // (r * r), height, r, width, r)  # (..., C, H, ry, W, rx)
    change = Requantization(quant.scale, quant.zero_point, output_inv_scale, output_zero_point)
    _requantize(cx, input, out, change, walked, (*rest, y, ry, x, rx))


@q8ta_pixel_shuffle.reference
def _(input: Any, quant: QuantParams, output_inv_scale: float, output_zero_point: int, upscale_factor: int) -> Any:
    r = upscale_factor
    *outer, channels, height, width = input.shape
    out = np.empty((*outer, channels // (r * r), height * r, width * r), np.int8)
    codes = numpy_codes(_numbers(input, quant), QuantParams(1.0 / output_inv_scale, output_zero_point))
    for dy in range(r):
        for dx in range(r):
            out[..., dy::r, dx::r] = codes[..., dy * r + dx :: r * r, :, :]
    return out
