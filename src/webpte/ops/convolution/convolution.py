"""Convolutions over one, two or three spatial axes, also transposed and grouped."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...graph import FINISHED_CONVOLUTION, numel
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import FLOATS, op
from ..matmul.epilogue import Epilogue, finished
from ..matmul.product import UNLIMITED, Limits
from .convolution_kernels import Geometry, convolve


def _per_axis(values: list[int], axes: int) -> Dims:
    """One number may stand for all axes."""
    return tuple(values * axes if len(values) == 1 else values)


@op("aten.convolution.default", dtypes=FLOATS)
def convolution(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *,
    out: Tensor,
) -> None:
    geometry = _geometry(weight.dims, stride, padding, dilation, transposed, output_padding, groups)
    convolve(cx, input, weight, bias, geometry, UNLIMITED, out)


@op("et_vk.conv_with_clamp.default", dtypes=FLOATS)
def conv_with_clamp(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_min: int | float | None,
    output_max: int | float | None,
    *,
    out: Tensor,
) -> None:
    geometry = _geometry(weight.dims, stride, padding, dilation, transposed, output_padding, groups)
    convolve(cx, input, weight, bias, geometry, Limits.of(output_min, output_max), out)


@op(FINISHED_CONVOLUTION)
def finished_convolution(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_min: int | float | None,
    output_max: int | float | None,
    program: str,
    tensors: list[Tensor],
    numbers: list[int | float],
    like: Tensor | None,
    *,
    out: Tensor,
) -> None:
    geometry = _geometry(weight.dims, stride, padding, dilation, transposed, output_padding, groups)
    epilogue = Epilogue(program, tensors, numbers, like)
    convolve(cx, input, weight, bias, geometry, Limits.of(output_min, output_max), out, epilogue)


def _geometry(
    weight: Dims,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Geometry:
    axes = len(weight) - 2
    return Geometry(
        kernel=weight[2:],
        stride=_per_axis(stride, axes),
        padding=_per_axis(padding, axes),
        dilation=_per_axis(dilation, axes),
        output_padding=_per_axis(output_padding, axes),
        transposed=transposed,
        groups=groups,
    )


@convolution.reference
def _reference(
    input: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """Adds up one shifted, strided view per tap: gathered, or scattered if transposed."""
    geometry = _geometry(weight.shape, stride, padding, dilation, transposed, output_padding, groups)
    axes = weight.ndim - 2
    *batch, depth = input.shape[:-axes]
    x = input.astype(np.float64).reshape(numel(tuple(batch)), groups, depth // groups, *input.shape[-axes:])
    taps = itertools.product(*map(range, geometry.kernel))
    run = _scatter if transposed else _gather
    total = run(x, weight.astype(np.float64), taps, geometry)  # (N, groups, OC / groups, ...)
    total = total.reshape(*batch, groups * total.shape[2], *total.shape[-axes:])
    if bias is not None:
        total += bias.reshape(-1, *(1,) * axes)
    return total.astype(input.dtype)


def _windows(geometry: Geometry, tap: tuple[int, ...], counts: Dims) -> tuple[Any, ...]:
    """Where one tap lies in the padded image, for all positions of the kernel."""
    rows = zip(tap, geometry.stride, geometry.dilation, counts, strict=True)
    return (..., *(slice(t * d, t * d + s * (n - 1) + 1, s) for t, s, d, n in rows))


def _gather(x: Any, weight: Any, taps: Any, geometry: Geometry) -> Any:
    axes = len(geometry.kernel)
    counts = geometry.extent(x.shape[-axes:])
    padded = np.pad(x, [(0, 0)] * 3 + [(p, p) for p in geometry.padding])
    kernels = weight.reshape(geometry.groups, -1, *weight.shape[1:])  # (G, O, I, ...)
    return sum(
        np.einsum("ngi...,goi->ngo...", padded[_windows(geometry, tap, counts)], kernels[(..., *tap)]) for tap in taps
    )


def _scatter(x: Any, weight: Any, taps: Any, geometry: Geometry) -> Any:
    axes = len(geometry.kernel)
    counts = x.shape[-axes:]
    kernels = weight.reshape(geometry.groups, -1, *weight.shape[1:])  # (G, I, O, ...)
    spans = [slice(p, p + n) for p, n in zip(geometry.padding, geometry.extent(counts), strict=True)]
    whole = [span.stop + span.start for span in spans]  # the output with its padding, which is cut off at the end
    padded: Any = np.zeros((*x.shape[:2], weight.shape[1], *whole))
    for tap in taps:
        padded[_windows(geometry, tap, counts)] += np.einsum("ngi...,gio->ngo...", x, kernels[(..., *tap)])
    return padded[(..., *spans)]


@conv_with_clamp.reference
def _clamped_reference(*arguments: Any) -> Any:
    *convolution_arguments, lowest, highest = arguments
    result = _reference(*convolution_arguments)
    return result if lowest is None and highest is None else np.clip(result, lowest, highest)


@finished_convolution.reference
def _(*arguments: Any) -> Any:
    return finished(_clamped_reference(*arguments[:-4]), *arguments[-4:])
