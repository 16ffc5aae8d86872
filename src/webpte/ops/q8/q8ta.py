"""Shared parts of the statically quantized int8 ops: a scale and zero point per tensor, weights with one per channel.

A product accumulates in i32, exactly, and is scaled once:

    value = sum * input_scale * weight_scale[channel] + bias[channel]
    code  = clamp(round(value / output_scale) + output_zero_point, -128, 127)

Scales and biases may be longer than there are channels: the exporter pads them to a multiple of 4. It also stores the
sum of each channel's weights, by which others correct for the input's zero point; here the zero point is subtracted
as the input is read, which is as exact and does not depend on a second copy of the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType
from ...lowering.context import Arrays, Context, Tensor
from ...lowering.registry import FLOATS, Unused
from ...wgsl import Uniforms, f32, i32
from ..quantize.quantize import PerTensorScale, numpy_quantize, quantize

Q8TA = FLOATS | {DType.INT8, DType.INT32}  # codes; scales and biases; the sums
ACTIVATIONS = ("none", "relu")


class ScalingParams(Uniforms):
    """From the sums of a product to codes. Parameter blocks of products start with these."""

    x_scale: f32
    x_zero: i32
    inverse: f32  # of the output's scale
    zero: f32  # the output's


def require_codes(*tensors: Tensor) -> None:
    """Raise GraphError unless the tensors are int8. Dtypes of ops do not say which operands are codes."""
    for tensor in tensors:
        if tensor.dtype is not DType.INT8:
            raise GraphError(argument=f"value {tensor.id}", expected="i8", got=tensor.spec, code="dtype")


@dataclass(frozen=True)
class QuantParams:
    """The coding of numbers: (code - zero_point) * scale."""

    scale: float
    zero_point: int


InputQuantParams = Annotated[QuantParams, "input_"]
OutputQuantParams = Annotated[QuantParams, "output_"]


def codes_of(cx: Context, x: Tensor, coding: QuantParams) -> Tensor:
    """Return the codes of an input. Before ExecuTorch 1.2, ops with float results quantize it themselves."""
    if x.dtype not in FLOATS:
        return x
    codes = cx.scratch(DType.INT8, x.dims)
    quantize(cx, x, PerTensorScale(coding.scale, coding.zero_point), (-128, 127), codes)
    return codes


@dataclass(frozen=True)
class Q8Weights:
    """The arguments that describe a layer's weights."""

    weights: Tensor
    weight_sums: Unused
    weight_scales: Tensor

    def channels(self, bias: Tensor | None, activation: str = "none") -> ChannelEpilogue:
        return ChannelEpilogue(self.weight_scales, bias, activation)


class InputOutputQuant(NamedTuple):
    """How the input and the output of a product are quantized, if the output is."""

    input: QuantParams
    output: QuantParams | None = None

    @property
    def uniforms(self) -> dict[str, Any]:
        inverse, zero = (1.0, 0) if self.output is None else (1.0 / self.output.scale, self.output.zero_point)
        return {"x_scale": self.input.scale, "x_zero": self.input.zero_point, "inverse": inverse, "zero": zero}


class ChannelEpilogue(NamedTuple):
    """The scale, bias and activation of a product, by channel."""

    scales: Tensor
    bias: Tensor | None
    activation: str = "none"

    def check(self, count: int) -> None:
        if self.activation not in ACTIVATIONS:
            raise GraphError(
                argument="activation",
                expected=f"one of {', '.join(ACTIVATIONS)}",
                got=repr(self.activation),
                code="unknown_choice",
            )
        for operand in (self.scales, self.bias):
            if operand is not None and operand.numel < count:
                raise ShapeError(
                    f"{operand!r}: expected an element for each of {count} channels, got {operand.numel}",
                    code="operand_mismatch",
                )

    @property
    def arrays(self) -> Arrays:
        """Return the operands by the names that they have in q8ta_operands.wgsl."""
        return {"scales": self.scales, "bias": self.bias}

    @property
    def flags(self) -> dict[str, Any]:
        return {
            "scale_type": self.scales.wgsl,
            "bias_type": self.bias.wgsl if self.bias is not None else "",
            "relu": self.activation == "relu",
        }


# -- NumPy, for references ---------------------------------------------------------------------------------------------


def numpy_values(sums: Any, x_scale: float, scales: Any, bias: Any, activation: str, after: int = 0) -> Any:
    """Return the float32 values of integer sums, with the operations of the kernel.

    `after` dims follow the channels.
    """
    count = sums.shape[sums.ndim - 1 - after]
    shape = (-1, *(1,) * after)
    values = sums.astype(np.float32) * np.float32(x_scale) * scales[:count].astype(np.float32).reshape(shape)
    if bias is not None:
        values = values + bias[:count].astype(np.float32).reshape(shape)
    return np.maximum(values, np.float32(0)) if activation == "relu" else values


def numpy_input(x: Any, coding: QuantParams) -> Any:
    """Return the codes of an input, as `codes_of` does."""
    return numpy_codes(x.astype(np.float32), coding) if x.dtype.kind == "f" else x


def numpy_codes(values: Any, coding: QuantParams) -> Any:
    """Return the int8 codes of float32 values."""
    return numpy_quantize(values, np.float32(1.0 / coding.scale), coding.zero_point, -128, 127)
