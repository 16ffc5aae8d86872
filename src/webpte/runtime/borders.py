"""Where callers' arrays meet the device: what is accepted, narrowed, widened and given back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..container import DType
from ..device import storage_dtype
from ..errors import Error, InputError, RangeError
from ..graph import TensorSpec
from ..lowering.numbers import INT32_HIGH, INT32_LOW

Array = np.ndarray[Any, Any]
FLOAT32_HIGH = float(np.finfo(np.float32).max)


def at_position(values: Sequence[int], position: object, what: str) -> int:
    """The value a caller points at by its position among the inputs or outputs of a method."""
    try:
        return values[operator.index(position)]  # type: ignore[arg-type]
    except (TypeError, IndexError):
        raise InputError(f"{position!r} is not a position among the {len(values)} {what}") from None


def to_array(value: Any, spec: TensorSpec, where: str) -> Array:
    """The caller's value as a C-contiguous array of the declared dtype. Shapes are checked separately."""
    array = _as_numpy(value, where)
    wanted = spec.host_dtype.held
    if array.dtype != wanted:
        if not np.can_cast(array.dtype, wanted, "safe"):
            raise InputError(
                f"{where} has dtype {array.dtype}; the program declares {wanted}. Convert it with .astype(np.{wanted})."
            )
        array = array.astype(wanted)
    return spec.host_dtype.rounded(array)


def check_dims(dims: tuple[int, ...], spec: TensorSpec, where: str) -> None:
    bound = spec.dims
    if len(dims) != len(bound):
        raise InputError(f"{where} has {len(dims)} dims {list(dims)}; the program declares {len(bound)}: {list(bound)}")
    if not spec.dynamic and dims != bound:
        raise InputError(f"{where} has shape {list(dims)}; the program was exported for exactly {list(bound)}")
    if any(not min(1, b) <= d <= b for d, b in zip(dims, bound, strict=True)):  # a bound of 0 allows nothing else
        raise InputError(
            f"{where} has shape {list(dims)}; each dim must be from 1 to its bound {list(bound)}. "
            "Re-export with a larger upper bound if you need more."
        )


def to_device(array: Array, spec: TensorSpec, refuse: Callable[[str], Error] = RangeError) -> Array:
    """The array as the device stores it: 64-bit narrowed (values checked), bools widened to words.

    `refuse` makes the error out of what is wrong with the values.
    """
    wanted = storage_dtype(spec.dtype)
    if spec.host_dtype is DType.INT64 and array.size:
        low, high = int(array.min()), int(array.max())
        if low < INT32_LOW or high > INT32_HIGH:
            raise refuse(f"holds values from {low} to {high}; the device computes with 32-bit integers")
    elif spec.host_dtype is DType.FLOAT64 and array.size:
        size = float(np.max(np.abs(array), where=np.isfinite(array), initial=0))
        if size > FLOAT32_HIGH:
            raise refuse(f"holds values up to {size:g} in size; the device computes with 32-bit floats")
    return np.ascontiguousarray(array.astype(wanted, copy=False))


def from_device(data: memoryview, dims: tuple[int, ...], spec: TensorSpec) -> Array:
    """Bytes read back, as the dtype the program declares. The result owns its memory."""
    array = np.frombuffer(data, storage_dtype(spec.dtype)).reshape(dims)
    return array.astype(spec.host_dtype.held)


def _as_numpy(value: Any, where: str) -> Array:
    if isinstance(value, np.ndarray):
        if value.dtype.isbuiltin == 1:  # asked first, in every call: the name is put together in Python
            return value
        # bfloat16 is what others have taught NumPy, and not safe to cast by its rules.
        return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
    try:
        if hasattr(value, "detach"):  # a torch tensor that requires grad refuses to be viewed
            value = value.detach()
            if str(value.dtype) == "torch.bfloat16":  # which NumPy does not have; f32 holds every value of it
                value = value.float()
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        raise InputError(f"{where} is a {type(value).__name__} that cannot be read as an array: {error}") from error
