"""Compute eager PyTorch's results for the arguments of a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Array = np.ndarray


def overload(name: str) -> Any:
    """Return the torch op of an edge name such as `aten.add.Tensor`; None if torch alone has none."""
    namespace, _, rest = name.partition(".")
    base, _, which = rest.rpartition(".")
    if namespace != "aten" or not base:
        return None
    return getattr(getattr(torch.ops.aten, base, None), which, None)


def compute(name: str, values: Sequence[Any]) -> tuple[Array, ...] | None:
    """An op's results, as a tuple; None where torch has no such op or does not take such operands.

    Indices may have to be 64 bits wide. Where the CPU has no kernel for halves, floats compute what is then rounded.
    """
    call = overload(name)
    if call is None:
        return None
    attempts: list[Callable[[Any], Any]] = [_same, _wide_integers, _floats, lambda x: _floats(_wide_integers(x))]
    for convert in attempts:
        try:
            result = _call(call, [convert(_torch(value)) for value in values])
        except (RuntimeError, NotImplementedError, TypeError, IndexError):
            continue
        halves = convert in attempts[2:] and any(getattr(v, "dtype", None) == np.float16 for v in _flat(values))
        return tuple(_numpy(tensor, halves) for tensor in result)
    return None


def _call(call: Any, values: list[Any]) -> tuple[torch.Tensor, ...]:
    arguments = call._schema.arguments
    pairs = list(zip(arguments, values, strict=False))
    positional = [value for argument, value in pairs if not argument.kwarg_only]
    keywords = {argument.name: value for argument, value in pairs if argument.kwarg_only and value is not None}
    result = call(*positional, **keywords)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    return [_torch(v) for v in value] if isinstance(value, list) else value


def _same(value: Any) -> Any:
    return value


def _mapped(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        return [convert(v) for v in value] if isinstance(value, list) else value

    return convert


_wide_integers = _mapped(lambda t: t.long() if t.dtype == torch.int32 else t)
_floats = _mapped(lambda t: t.float() if t.dtype == torch.float16 else t)


def _flat(values: Sequence[Any]) -> list[Any]:
    return [v for value in values for v in (value if isinstance(value, list) else [value])]


def _numpy(tensor: torch.Tensor, halves: bool) -> Array:
    array = tensor.resolve_neg().numpy()
    with np.errstate(over="ignore"):
        return array.astype(np.float16) if halves and array.dtype == np.float32 else array
