"""Convolutions over one, two or three spatial axes, also transposed and grouped."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...graph import numel
from ...lowering import dim_rules
from ...lowering.context import Context, Dims, Tensor
from ...lowering.registry import FLOATS, op
from ...lowering.traits import CallSizes, OpTraits
from ..matmul.epilogue import Epilogue, applied, clamp_epilogue
from .convolution_kernels import ConvolutionGeometry, ConvolutionWindow, convolve

CONVOLVED = dim_rules.convolved("input", "weight", "stride", "padding", "dilation", transposed="transposed")


def _flops(sizes: CallSizes) -> int:
    """Return the operations: each pixel of the output (transposed: of the input) times the taps of one weight slice."""
    weight = sizes.dims("weight")  # (outputs, inputs per group, kernel...), transposed (inputs, ...)
    side = sizes.dims("input") if sizes.number("transposed") else sizes.out
    return 2 * numel(side) * numel(weight) // weight[0]


@op("aten.convolution.default", dtypes=FLOATS, traits=OpTraits(work=_flops, dims=CONVOLVED))
def convolution(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: ConvolutionGeometry,
    *,
    out: Tensor,
) -> None:
    convolve(cx, input, weight, bias, geometry.window(weight.dims), out)


@op("et_vk.conv_with_clamp.default", dtypes=FLOATS, traits=OpTraits(work=_flops, dims=CONVOLVED))
def conv_with_clamp(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: ConvolutionGeometry,
    output_min: int | float | None,
    output_max: int | float | None,
    *,
    out: Tensor,
) -> None:
    epilogue = clamp_epilogue(output_min, output_max, input.dtype)
    convolve(cx, input, weight, bias, geometry.window(weight.dims), out, epilogue)


@op("webpte.convolution", traits=OpTraits(work=_flops))
def convolution_with_epilogue(
    cx: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: ConvolutionGeometry,
    epilogue: Epilogue,
    *,
    out: Tensor,
) -> None:
    convolve(cx, input, weight, bias, geometry.window(weight.dims), out, epilogue)


@convolution.reference
def _reference(input: Any, weight: Any, bias: Any, geometry: ConvolutionGeometry) -> Any:
    """Return the sum of one shifted, strided view per tap: gathered, or scattered if transposed."""
    window = geometry.window(weight.shape)
    axes, groups = weight.ndim - 2, geometry.groups
    *batch, depth = input.shape[:-axes]
    wide = np.float64 if input.dtype.kind == "f" else np.int64
    x = input.astype(wide).reshape(numel(tuple(batch)), groups, depth // groups, *input.shape[-axes:])
    taps = itertools.product(*map(range, window.kernel))
    run = _scatter if geometry.transposed else _gather
    total = run(x, weight.astype(wide), taps, window)  # (N, groups, OC / groups, ...)
    total = total.reshape(*batch, groups * total.shape[2], *total.shape[-axes:])
    if bias is not None:
        total += bias.reshape(-1, *(1,) * axes)
    return total.astype(input.dtype)


def _views(window: ConvolutionWindow, tap: tuple[int, ...], counts: Dims) -> tuple[Any, ...]:
    """Return the slices of the padded image that one tap reads, for all positions of the kernel."""
    rows = zip(tap, window.stride, window.dilation, counts, strict=True)
    return (..., *(slice(t * d, t * d + s * (n - 1) + 1, s) for t, s, d, n in rows))


def _gather(x: Any, weight: Any, taps: Any, window: ConvolutionWindow) -> Any:
    axes = len(window.kernel)
    counts = window.extent(x.shape[-axes:])
    padded = np.pad(x, [(0, 0)] * 3 + [(p, p) for p in window.padding])
    kernels = weight.reshape(window.groups, -1, *weight.shape[1:])  # (G, O, I, ...)
    return sum(
        np.einsum("ngi...,goi->ngo...", padded[_views(window, tap, counts)], kernels[(..., *tap)]) for tap in taps
    )


def _scatter(x: Any, weight: Any, taps: Any, window: ConvolutionWindow) -> Any:
    axes = len(window.kernel)
    counts = x.shape[-axes:]
    kernels = weight.reshape(window.groups, -1, *weight.shape[1:])  # (G, I, O, ...)
    spans = [slice(p, p + n) for p, n in zip(window.padding, window.extent(counts), strict=True)]
    # What the taps write, of which the padding is cut off at the end, and further rows if the output has some.
    rows = zip(spans, counts, window.kernel, window.stride, window.dilation, strict=True)
    whole = [max(span.stop, (n - 1) * s + d * (k - 1) + 1) for span, n, k, s, d in rows]
    padded: Any = np.zeros((*x.shape[:2], weight.shape[1], *whole), x.dtype)
    for tap in taps:
        padded[_views(window, tap, counts)] += np.einsum("ngi...,gio->ngo...", x, kernels[(..., *tap)])
    return padded[(..., *spans)]


@conv_with_clamp.reference
def _(
    input: Any, weight: Any, bias: Any, geometry: ConvolutionGeometry, lowest: float | None, highest: float | None
) -> Any:
    result = _reference(input, weight, bias, geometry)
    return result if lowest is None and highest is None else np.clip(result, lowest, highest)


@convolution_with_epilogue.reference
def _(input: Any, weight: Any, bias: Any, geometry: ConvolutionGeometry, epilogue: Epilogue) -> Any:
    return applied([_reference(input, weight, bias, geometry)], epilogue)
