"""torchao's affine quantization: codes = round(x / scale) + zero, with a scale and a zero for each block of elements.

A block may be a row, a channel, a group or everything: `block_size` gives its extent along each dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, numel
from ...lowering.context import Context, Tensor
from ...lowering.registry import BYTES, FLOATS, TensorOption, op
from ...lowering.shapes import Dims, check_rank, coalesce, strides
from ...wgsl import Uniforms, dims8, f32, u32
from ..create.fill import numpy_dtype
from ..reduce.reduce import ReductionParams
from ..reduce.reduce import walk as reduction_walk

AFFINE = FLOATS | BYTES | {DType.INT32}
# 2**31 - 128 is the greatest i32 that f32 holds.
_RANGES = {DType.INT8: (-128, 127), DType.UINT8: (0, 255), DType.INT32: (-(2**31), 2**31 - 128)}
INT8_LIMITS = _RANGES[DType.INT8]
MAPPINGS = ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR")


def grid_of(dims: Dims, block_size: list[int]) -> Dims:
    """Return the number of blocks along each dim."""
    fits = len(block_size) == len(dims) and all(b > 0 and d % b == 0 for d, b in zip(dims, block_size, strict=True))
    if not fits:
        raise ShapeError(
            argument="block_size", expected=f"divisors of the dims {list(dims)}", got=block_size, code="block_size"
        )
    return tuple(d // b for d, b in zip(dims, block_size, strict=True))


def _split(grid: Dims, block_size: list[int]) -> Dims:
    """Return the tensor's shape with each dim split into blocks and the positions in a block."""
    return tuple(size for pair in zip(grid, block_size, strict=True) for size in pair)


@dataclass(frozen=True)
class BlockQuantization:
    """A scale, and a zero point unless that is 0, for each block of elements."""

    block_size: list[int]
    scale: Tensor
    zero_point: Tensor | None


class AffineParams(Uniforms):
    count: u32
    rank: u32
    lowest: f32
    highest: f32
    dims: dims8
    s_strides: dims8


def affine(
    cx: Context,
    mode: str,
    x: Tensor,
    blocks: BlockQuantization,
    out: Tensor,
    limits: tuple[float, float] = (0, 0),
) -> None:
    """Quantize, dequantize, or do both ("fake"). The caller sets `out.dims`."""
    block_size, scale, zero_point = blocks.block_size, blocks.scale, blocks.zero_point
    grid = grid_of(x.dims, block_size)
    for operand in (scale, zero_point):
        if operand is not None and operand.numel != numel(grid):
            raise ShapeError(
                f"{operand!r}: expected one element for {numel(grid)} blocks of {block_size}, got {operand.numel}",
                code="operand_mismatch",
            )
    # Each element's scale: a step along a dim of blocks is a step among the scales, one inside a block is none.
    steps = tuple(step for own in strides(grid) for step in (own, 0))
    dims, (s_strides,) = coalesce(_split(grid, block_size), steps)
    check_rank(dims)
    params = AffineParams(
        count=x.numel, rank=len(dims), lowest=limits[0], highest=limits[1], dims=dims, s_strides=s_strides
    )
    cx.dispatch(
        "quantize/affine.wgsl",
        reads={"x": x, "scales": scale, "zeros": zero_point},
        writes={"y": out},
        params=params,
        threads=-(-x.numel // 4),
        mode=mode,
        source=x.dtype.short,
        target=out.dtype.short,
        scale_type=scale.wgsl,
        zero_type=zero_point.dtype.short if zero_point is not None else "",
        flat=s_strides == strides(dims),
    )


def _limits(lowest: float | None, highest: float | None, dtype: DType) -> tuple[float, float]:
    """Return the limits of codes: the arguments, else the range of the dtype."""
    if dtype not in _RANGES:
        raise GraphError(
            argument="dtype", expected=f"one of {', '.join(d.short for d in _RANGES)}", got=dtype.short, code="dtype"
        )
    low, high = _RANGES[dtype]
    return (low if lowest is None else lowest, high if highest is None else highest)


@op("torchao.quantize_affine.default", dtypes=AFFINE)
def quantize_affine(
    cx: Context,
    input: Tensor,
    blocks: BlockQuantization,
    output_dtype: TensorOption,
    quant_min: int | float | None,
    quant_max: int | float | None,
    *,
    out: Tensor,
) -> None:
    out.dims = input.dims
    affine(cx, "quantize", input, blocks, out, _limits(quant_min, quant_max, out.dtype))


@quantize_affine.reference
def _(
    input: Any,
    blocks: BlockQuantization,
    output_dtype: int,
    quant_min: float | None,
    quant_max: float | None,
) -> Any:
    dtype = DType.from_scalar_type(output_dtype)
    codes = numpy_codes(input, blocks, _limits(quant_min, quant_max, dtype))
    return codes.astype(dtype.numpy)


@op("torchao.dequantize_affine.default", dtypes=AFFINE)
def dequantize_affine(
    cx: Context,
    input: Tensor,
    blocks: BlockQuantization,
    input_dtype: TensorOption,
    quant_min: int | float | None,
    quant_max: int | float | None,
    output_dtype: TensorOption,
    *,
    out: Tensor,
) -> None:
    out.dims = input.dims
    affine(cx, "dequantize", input, blocks, out)


@dequantize_affine.reference
def _(
    input: Any,
    blocks: BlockQuantization,
    input_dtype: object,
    quant_min: object,
    quant_max: object,
    output_dtype: int | None,
) -> Any:
    zero, scale = (operand.astype(np.float32) for operand in _spread_both(blocks, input.shape))
    values = (input.astype(np.float32) - zero) * scale
    return values.astype(numpy_dtype(output_dtype, np.float32))


def fake_quantize(cx: Context, x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Write every row of `x` rounded to int8 and back."""
    rounded = cx.scratch(DType.FLOAT32, x.dims)
    row = [1] * (x.rank - 1) + [x.dims[-1]]
    affine(cx, "fake", x, BlockQuantization(row, scale, zero_point), rounded, INT8_LIMITS)
    return rounded


class ChooseAffineParams(ReductionParams):
    blocks: u32
    lowest: f32
    highest: f32
    eps: f32


@op("torchao.choose_qparams_affine.default", dtypes=AFFINE)
def choose_qparams_affine(
    cx: Context,
    input: Tensor,
    mapping_type: str,
    block_size: list[int],
    target_dtype: TensorOption,
    quant_min: int | float | None,
    quant_max: int | float | None,
    eps: float | None,
    scale_dtype: TensorOption,
    zero_point_dtype: TensorOption,
    keepdim: bool = False,  # torchao 0.14, of ExecuTorch 1.0, has no such argument
    *,
    out: tuple[Tensor, Tensor],
) -> None:
    if mapping_type not in MAPPINGS:
        raise GraphError(
            argument="mapping_type", expected=f"one of {', '.join(MAPPINGS)}", got=mapping_type, code="unknown_choice"
        )
    scale, zero_point = out
    grid = grid_of(input.dims, block_size)
    scale.dims = zero_point.dims = _kept(grid, block_size, scale.rank)
    # The delegate does not name the dtype of the codes. If the limits are null too, it is int8.
    lowest, highest = _limits(quant_min, quant_max, DType.INT8)
    least = _smallest(input.spec.host_dtype) if eps is None else eps
    split = _split(grid, block_size)
    walked = vars(reduction_walk(split, set(range(1, len(split), 2)), 1.0))
    blocks = numel(grid)
    params = ChooseAffineParams(**walked, blocks=blocks, lowest=lowest, highest=highest, eps=least)
    cx.dispatch(
        "quantize/affine_choose.wgsl",
        reads={"x": input},
        writes={"scales": scale, "zeros": zero_point},
        params=params,
        threads=-(-blocks // 4) if zero_point.dtype in BYTES else blocks,  # zeros may share words
        workgroup=8,
        mapping=mapping_type,
        type=input.wgsl,
        scale_type=scale.wgsl,
        zero_type=zero_point.dtype.short,
    )


def _smallest(dtype: DType) -> float:
    """Return the smallest normal number, torchao's default for `eps`."""
    return float(np.finfo(np.float16 if dtype is DType.FLOAT16 else np.float32).smallest_normal)


def _kept(grid: Dims, block_size: list[int], rank: int) -> Dims:
    """Return the grid without the dims that one block spans; `rank` dims remain.

    The bound decides which those are: a dim of blocks of 1 may have a single one in this call only.
    """
    single = sorted((d for d, blocks in enumerate(grid) if blocks == 1), key=lambda d: block_size[d] == 1)
    gone = single[: len(grid) - rank]
    return tuple(blocks for d, blocks in enumerate(grid) if d not in gone)


@choose_qparams_affine.reference
def _(
    input: Any,
    mapping_type: str,
    block_size: list[int],
    target_dtype: object,
    quant_min: float | None,
    quant_max: float | None,
    eps: float | None,
    scale_dtype: int | None,
    zero_point_dtype: int | None,
    keepdim: bool,
) -> Any:
    lowest, highest = (np.float32(v) for v in _limits(quant_min, quant_max, DType.INT8))
    grid = grid_of(input.shape, block_size)
    within = tuple(range(1, 2 * input.ndim, 2))
    blocks = input.astype(np.float32).reshape(_split(grid, block_size))
    least, greatest = np.minimum(blocks.min(within), 0), np.maximum(blocks.max(within), 0)
    if mapping_type == "ASYMMETRIC":
        scale = (greatest - least) / (highest - lowest)
    elif mapping_type == "SYMMETRIC":
        scale = np.maximum(-least, greatest) / ((highest - lowest) / 2)
    else:
        scale = np.maximum(least / lowest, greatest / highest)
    scale = np.maximum(scale, np.float32(np.finfo(input.dtype).smallest_normal if eps is None else eps))
    zero = np.full_like(scale, int((highest + lowest + 1) / 2))
    if mapping_type == "ASYMMETRIC":
        zero = np.clip(lowest - np.round(least / scale), lowest, highest)
    spanned = sum(b == d and b > 1 for b, d in zip(block_size, input.shape, strict=True))
    shape = grid if keepdim else _kept(grid, block_size, input.ndim - spanned)
    default = np.int32 if mapping_type == "ASYMMETRIC" else np.float32
    return (
        scale.reshape(shape).astype(numpy_dtype(scale_dtype, input.dtype)),
        zero.reshape(shape).astype(numpy_dtype(zero_point_dtype, default)),
    )


# -- NumPy, for references ---------------------------------------------------------------------------------------------


def spread(values: Any, dims: Dims, block_size: list[int]) -> Any:
    """Return the value of each block, repeated for each element."""
    result = values.reshape(grid_of(dims, block_size))
    for axis, size in enumerate(block_size):
        result = np.repeat(result, size, axis)
    return result


def _spread_both(blocks: BlockQuantization, dims: Dims) -> tuple[Any, Any]:
    """Return the zero point and scale of each element."""
    zero = np.zeros(()) if blocks.zero_point is None else spread(blocks.zero_point, dims, blocks.block_size)
    return zero, spread(blocks.scale, dims, blocks.block_size)


def numpy_codes(x: Any, blocks: BlockQuantization, limits: tuple[float, float]) -> Any:
    """Return codes as float64, rounded in f32 as torchao does."""
    zeros, scales = _spread_both(blocks, x.shape)
    rounded = np.round(x.astype(np.float32) * (np.float32(1) / scales.astype(np.float32))).astype(np.float64)
    return np.clip(rounded + zeros.astype(np.float64), *limits)


def numpy_row_qparams(x: Any, eps: float) -> tuple[Any, Any]:
    """Return scale and zero point of each row, asymmetric in int8, by its range."""
    wide = x.astype(np.float32)
    least, greatest = np.minimum(wide.min(-1), 0), np.maximum(wide.max(-1), 0)
    lowest, highest = (np.float32(limit) for limit in INT8_LIMITS)
    scale = np.maximum((greatest - least) / (highest - lowest), np.float32(eps))
    return scale, np.clip(lowest - np.round(least / scale), lowest, highest)


def numpy_fake_quantize(x: Any, scale: Any, zero_point: Any) -> Any:
    """Return the result of `fake_quantize` in float64, for references."""
    blocks = BlockQuantization([1] * (x.ndim - 1) + [x.shape[-1]], scale, zero_point)
    codes = numpy_codes(x, blocks, INT8_LIMITS)
    zeros, scales = (operand.astype(np.float64) for operand in _spread_both(blocks, x.shape))
    return (codes - zeros) * scales
