"""Python numbers as kernels take them, and NumPy arithmetic under PyTorch's promotion rule for the references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import RangeError
from ..graph import DType
from ..graph.expressions import EXPRESSIONS, Term, apply, float_bits, saturate
from .context import Tensor

Array = np.ndarray[Any, Any]
HALVES = (DType.FLOAT16, DType.WIDE_FLOAT16)
INT32_LOW, INT32_HIGH = -(2**31), 2**31 - 1
_NUMBER_DTYPES = {bool: np.bool_, int: np.int64, float: np.float32}


def is_float(tensor: Tensor) -> bool:
    return tensor.dtype in (DType.FLOAT32, *HALVES)


def rounded(value: Term, dtype: DType) -> Term:
    """Return a number as a tensor of a float dtype holds it: beyond 65504 a half is infinite."""
    return apply("round_to_f16", value) if dtype in HALVES else value


def bits_of(value: Term, floating: bool) -> Term:
    """Return the bits of a number as f32 or i32, as the kernel computes with it. An integer that does not fit raises.

    One that is known only in a call is refused then: see plan.schedules.
    """
    if floating:
        return apply("float_bits", value)
    if isinstance(value, EXPRESSIONS):
        return apply("int", value)
    return fitting(value) if isinstance(value, int) else saturate(value)


def fitting(value: int) -> int:
    """Return an integer that fits the device's 32 bits, or raise."""
    if not INT32_LOW <= value <= INT32_HIGH:
        raise RangeError(f"{value} does not fit the device's 32-bit integers")
    return value


def order_key(value: float) -> int:
    """Return a signed integer that sorts like the float, as `order_key` of floats.wgsl does."""
    bits = float_bits(value)
    return bits if bits >= 0 else bits ^ 0x7FFFFFFF


def promoted(*operands: Any) -> np.dtype[Any]:
    """Return PyTorch's result dtype: tensors with dims decide; then scalars, then numbers, if their kind is higher."""
    levels: list[list[np.dtype[Any]]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, (bool, int, float)):
            levels[2].append(np.dtype(_NUMBER_DTYPES[type(operand)]))
        else:
            array = np.asarray(operand)
            levels[0 if array.ndim else 1].append(array.dtype)
    result: np.dtype[Any] | None = None
    for level in levels:
        if level and (result is None or max(map(_kind, level)) > _kind(result)):
            result = _join([d for d in level if _kind(d) == max(map(_kind, level))])
    assert result is not None
    return result


def _kind(dtype: np.dtype[Any]) -> int:
    return "biuf".index(dtype.kind) if dtype.kind != "u" else 1


def _join(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    return np.result_type(*dtypes)


def floated(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the result dtype of functions like sqrt: floats stay, others become f32."""
    return dtype if dtype.kind == "f" else np.dtype(np.float32)


def widened(operand: Any, dtype: np.dtype[Any]) -> Array:
    """Return an operand for exact arithmetic: float64, int64 or bool, with the value that it has in `dtype`."""
    if dtype.kind == "b":
        return np.asarray(operand, np.bool_)
    if dtype.kind != "f":
        return np.asarray(operand).astype(np.int64)
    # A plain number keeps f32 precision with f16 operands: PyTorch computes half precision in f32.
    narrow = dtype if isinstance(operand, np.ndarray) or dtype.itemsize > 4 else np.dtype(np.float32)
    return np.asarray(operand).astype(narrow).astype(np.float64)


def computed(function: Callable[..., Any], *operands: Any, dtype: np.dtype[Any] | None = None) -> Array:
    """Compute `function` in wide arithmetic and return `dtype` (default: the promoted one). Integers wrap."""
    result = promoted(*operands) if dtype is None else dtype
    with np.errstate(all="ignore"):
        return np.asarray(function(*(widened(operand, result) for operand in operands))).astype(result)
