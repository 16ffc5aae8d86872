"""Formats of quantized weights: what codes stand for before they are multiplied by scales, in NumPy and in WGSL.

Each file declares one as FORMAT, with a template beside it that decodes a word of codes: see int4.wgsl.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np

from ...errors import GraphError
from ...graph import DType
from ...lowering.context import Tensor

E8M0 = "e8m0"  # the type of scales that are bytes: exponents of powers of two


@dataclass(frozen=True)
class CodeFormat:
    """A format of the codes of a weight, which files and passes name in calls."""

    name: str
    loader: str  # the template that decodes a word of codes
    bits: int  # of a code
    numbers: Callable[[Any], Any]  # of codes: (..., bytes) to (..., columns)
    decodes: frozenset[str] = frozenset()  # ways of its loader besides `codes`: see int4.wgsl
    packs: bool = False  # its codes, as integers, can be multiplied with those of rows in int8

    @property
    def word_codes(self) -> int:
        return 32 // self.bits

    def numpy_weight(self, codes: Any, scales: Any, group: int) -> Any:
        """Return the weight (N, columns) in float64. Columns after the last group are zero."""
        numbers = self.numbers(codes).astype(np.float64)
        grouped = numpy_scales(scales).reshape(-1, scales.shape[-1])[:, : len(codes)]  # (groups, N)
        factors = np.repeat(grouped.T, group, axis=1)[:, : numbers.shape[1]]
        return numbers * np.pad(factors, ((0, 0), (0, numbers.shape[1] - factors.shape[1])))

    def numpy_rows(self, codes: Any, scales: Any, zeros: Any = 0.0) -> Any:
        """Return rows (..., columns) in float64; scales and zeros are (..., groups)."""
        numbers = self.numbers(codes).astype(np.float64)
        grouped = numbers.reshape(*scales.shape, -1)
        return ((grouped - np.asarray(zeros)[..., None]) * numpy_scales(scales)[..., None]).reshape(numbers.shape)


@cache
def _formats() -> dict[str, CodeFormat]:
    modules = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
    return {module.FORMAT.name: module.FORMAT for module in modules}


def format_named(name: str) -> CodeFormat:
    """Return the format of a name in a call."""
    if name not in _formats():
        raise GraphError(argument="format", expected=", ".join(sorted(_formats())), got=name, code="weight_format")
    return _formats()[name]


def scale_type(scales: Tensor) -> str:
    """Return the name that packed.wgsl has for the type of scales."""
    return E8M0 if scales.dtype is DType.UINT8 else scales.wgsl


def numpy_scales(scales: Any) -> Any:
    """Return scales in float64."""
    numbers = (scales.astype(np.uint32) << 23).view(np.float32) if scales.dtype == np.uint8 else scales
    return numbers.astype(np.float64)


def nibbles(codes: Any, high_first: bool = False) -> Any:
    """Return the two codes of each byte, (..., bytes) to (..., 2 * bytes), from 0 to 15."""
    low, high = (codes.view(np.uint8) & 15).view(np.int8), (codes.view(np.uint8) >> 4).view(np.int8)
    return np.stack((high, low) if high_first else (low, high), axis=-1).reshape(*codes.shape[:-1], -1)
