"""Pooling over windows of the last two dims of (N, C, H, W) or (C, H, W)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import numel
from ...lowering.context import Context, Tensor
from ...lowering.registry import FLOATS, NUMBERS, op
from ...lowering.shapes import Dims
from ...wgsl import Uniforms, u32


@dataclass(frozen=True, slots=True)
class PoolWindow:
    """How windows lie along one dim."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    windows: int  # their number, which is the output's size

    def span(self, index: int) -> range:
        """Return the input positions of one window, without those in the padding."""
        first = index * self.stride - self.padding
        outside = max(0, -(first // self.dilation))
        return range(
            first + outside * self.dilation, min(first + self.kernel * self.dilation, self.size), self.dilation
        )


def _pair(values: list[int], default: list[int] | None = None) -> tuple[int, int]:
    """Return an argument for both dims. One number applies to both; an empty list means the default."""
    pair = values or default or []
    if len(pair) not in (1, 2):
        raise ShapeError(f"pooling: expected one or two integers, got {values}", code="wrong_length")
    return pair[0], pair[-1]


def windows(
    dims: Dims, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> tuple[PoolWindow, PoolWindow]:
    """Return the windows along H and W by PyTorch's rule."""
    if len(dims) not in (3, 4):
        raise ShapeError(argument="input", expected="(N, C, H, W) or (C, H, W)", got=list(dims), code="rank")
    settings = zip(dims[-2:], _pair(kernel), _pair(stride, kernel), _pair(padding), _pair(dilation), strict=True)
    axes = []
    for size, k, s, p, d in settings:
        if min(k, s, d) < 1 or not 0 <= p <= k // 2:
            raise ShapeError(
                f"invalid pooling window: kernel {k}, stride {s}, padding {p}, dilation {d}", code="invalid_window"
            )
        room = size + 2 * p - d * (k - 1) - 1
        count = (room + (s - 1 if ceil else 0)) // s + 1
        if ceil and (count - 1) * s >= size + p:
            count -= 1  # a last window that starts in the padding is dropped
        if count < 1:
            raise ShapeError(
                f"a pooling window of {k} with dilation {d} and padding {p} does not fit {list(dims)}", code="too_small"
            )
        window = PoolWindow(size, k, s, p, d, count)
        if d > size and not all(window.span(i) for i in range(count)):
            raise ShapeError(
                f"a pooling window of {k} with dilation {d} and padding {p} covers no element of {list(dims)}",
                code="too_small",
            )
        axes.append(window)
    return axes[0], axes[1]


class PoolParams(Uniforms):
    height: u32
    width: u32
    out_height: u32
    out_width: u32
    kernel_y: u32
    kernel_x: u32
    stride_y: u32
    stride_x: u32
    padding_y: u32
    padding_x: u32
    dilation_y: u32
    dilation_x: u32
    divisor: u32  # of an average; 0 means the number of elements


def _params(y: PoolWindow, x: PoolWindow, divisor: int = 0) -> PoolParams:
    axes = {
        f"{name}_{axis}": getattr(window, name)
        for name in ("kernel", "stride", "padding", "dilation")
        for axis, window in (("y", y), ("x", x))
    }
    return PoolParams(height=y.size, width=x.size, out_height=y.windows, out_width=x.windows, divisor=divisor, **axes)


def _each_window(x: Any, rows: PoolWindow, columns: PoolWindow) -> Iterator[tuple[int, int, Any, range, range]]:
    """Yield the position of each output, the elements (..., h, w) of its window and their positions, for references."""
    for i in range(rows.windows):
        for j in range(columns.windows):
            at, across = rows.span(i), columns.span(j)
            yield i, j, x[..., list(at), :][..., list(across)], at, across


# -- averages ----------------------------------------------------------------------------------------------------------


@op("aten.avg_pool2d.default", dtypes=FLOATS)
def avg_pool2d(
    cx: Context,
    self: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    out: Tensor,
) -> None:
    rows, columns = windows(self.dims, kernel_size, stride, padding, [1], ceil_mode)
    if divisor_override is not None and divisor_override < 1:
        raise ShapeError(
            argument="divisor_override", expected="at least 1", got=divisor_override, code="invalid_window"
        )
    out.dims = (*self.dims[:-2], rows.windows, columns.windows)
    cx.dispatch(
        "image/avg_pool.wgsl",
        reads={"x": self},
        writes={"y": out},
        params=_params(rows, columns, divisor_override or 0),
        threads=out.numel,
        type=self.wgsl,
        padded=count_include_pad,
    )


@avg_pool2d.reference
def _(
    self: Any,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    rows, columns = windows(self.shape, kernel_size, stride, padding, [1], ceil_mode)
    wide = self.astype(np.float64 if self.dtype.kind == "f" else np.int64)
    out = np.zeros((*self.shape[:-2], rows.windows, columns.windows), wide.dtype)
    for i, j, part, _, _ in _each_window(wide, rows, columns):
        # With the padding counted a window ends where the padding does, which ceil_mode may go beyond.
        lengths = (
            [min(w.kernel, w.size + 2 * w.padding - at * w.stride) for w, at in ((rows, i), (columns, j))]
            if count_include_pad
            else part.shape[-2:]
        )
        total, divisor = part.sum(axis=(-2, -1)), divisor_override or numel(tuple(lengths))
        out[..., i, j] = total / divisor if wide.dtype.kind == "f" else (total - np.fmod(total, divisor)) // divisor
    return out.astype(self.dtype)


class AdaptivePoolParams(Uniforms):
    height: u32
    width: u32
    out_height: u32
    out_width: u32


@op("aten._adaptive_avg_pool2d.default", dtypes=FLOATS)
def adaptive_avg_pool2d(cx: Context, self: Tensor, output_size: list[int], *, out: Tensor) -> None:
    if self.rank not in (3, 4) or 0 in self.dims[-2:]:
        raise ShapeError(argument="input", expected="(N, C, H, W) or (C, H, W)", got=list(self.dims), code="rank")
    height, width = _pair(output_size)
    out.dims = (*self.dims[:-2], height, width)
    params = AdaptivePoolParams(height=self.dims[-2], width=self.dims[-1], out_height=height, out_width=width)
    cx.dispatch(
        "image/adaptive_avg_pool.wgsl",
        reads={"x": self},
        writes={"y": out},
        params=params,
        threads=out.numel,
        type=self.wgsl,
    )


@adaptive_avg_pool2d.reference
def _(self: Any, output_size: list[int]) -> Any:
    height, width = _pair(output_size)
    out = np.zeros((*self.shape[:-2], height, width))

    def share(index: int, count: int, size: int) -> slice:
        return slice(index * size // count, -(-(index + 1) * size // count))

    for i in range(height):
        for j in range(width):
            part = self[..., share(i, height, self.shape[-2]), share(j, width, self.shape[-1])]
            out[..., i, j] = part.mean(axis=(-2, -1), dtype=np.float64)
    return out.astype(self.dtype)


# -- maxima ------------------------------------------------------------------------------------------------------------


def max_pool(
    cx: Context, x: Tensor, axes: tuple[PoolWindow, PoolWindow], values: Tensor, indices: Tensor | None
) -> None:
    """Write the largest element of each window, and on request its position in H * W. Padding does not count."""
    rows, columns = axes
    values.dims = (*x.dims[:-2], rows.windows, columns.windows)
    if indices is not None:
        indices.dims = values.dims
    cx.dispatch(
        "image/max_pool.wgsl",
        reads={"x": x},
        writes={"values": values, "indices": indices},
        params=_params(rows, columns),
        threads=values.numel,
        type=x.wgsl,
        indexed=indices is not None,
        largest=True,
    )


@dataclass(frozen=True)
class MaxPoolArguments:
    """The arguments of a maximum pooling after its input, in the schema's order."""

    kernel_size: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil_mode: bool

    def windows(self, dims: Dims) -> tuple[PoolWindow, PoolWindow]:
        return windows(dims, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


@op("aten.max_pool2d_with_indices.default", dtypes=NUMBERS)
def max_pool2d_with_indices(
    cx: Context, self: Tensor, pooling: MaxPoolArguments, *, out: tuple[Tensor, Tensor]
) -> None:
    max_pool(cx, self, pooling.windows(self.dims), out[0], out[1])


@op("aten.max_pool2d.default", dtypes=NUMBERS)
def max_pool2d(cx: Context, self: Tensor, pooling: MaxPoolArguments, *, out: Tensor) -> None:
    max_pool(cx, self, pooling.windows(self.dims), out, None)


@max_pool2d_with_indices.reference
def _(self: Any, pooling: MaxPoolArguments) -> Any:
    return _numpy_max_pool(self, pooling)


@max_pool2d.reference
def _(self: Any, pooling: MaxPoolArguments) -> Any:
    return _numpy_max_pool(self, pooling)[0]


def _numpy_max_pool(x: Any, pooling: MaxPoolArguments) -> tuple[Any, Any]:
    rows, columns = pooling.windows(x.shape)
    values = np.empty((*x.shape[:-2], rows.windows, columns.windows), x.dtype)
    indices = np.empty(values.shape, np.int64)
    for i, j, part, at, across in _each_window(x, rows, columns):
        flat = part.reshape(*part.shape[:-2], -1)
        last = flat.shape[-1] - 1 - np.isnan(flat[..., ::-1]).argmax(axis=-1)  # the last NaN counts, as in PyTorch
        best = np.where(np.isnan(flat).any(axis=-1), last, flat.argmax(axis=-1))
        values[..., i, j] = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
        positions = np.add.outer(np.array(at) * x.shape[-1], np.array(across)).reshape(-1)
        indices[..., i, j] = positions[best]
    return values, indices
