"""The adapters of a language model: their names and numbers, and their matrices as constants of its graph."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..container import Span
from ..errors import InputError
from ..graph import Constant, DType, TensorSpec
from ..runtime.checks import check_path, described
from ..text import close_matches
from ..typing import PathLike

Array = np.ndarray[Any, Any]
MODULES = "webpte.adapter_modules"  # data of a program: see checkpoints/adapters.py
MAX_ADAPTERS = 64
MAX_NAME_CHARS = 64
_NAME = re.compile(r"\w[\w.-]*")
_RANK_MULTIPLE = 4  # a kernel loads four columns together


class LayerMatrices(Protocol):
    """The matrices of an adapter for one layer."""

    @property
    def rank(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def down(self) -> Array:
        """Return the first matrix, (R, K)."""

    def up(self) -> Array:
        """Return the second matrix, (R, N)."""


class Adapters:
    """Adapters that are loaded with a model. Constants are computed when they are uploaded, once for all graphs."""

    def __init__(self, matrices: Mapping[str, Mapping[str, LayerMatrices]]) -> None:
        """Give the adapters numbers from 1. `matrices` has those of each layer, by the names of adapter and layer."""
        self.names = tuple(matrices)
        self._matrices = [*matrices.values()]
        self.layers = frozenset(layer for each in self._matrices for layer in each)
        self._constants: dict[tuple[str, ...], TensorSpec] = {}

    def down(self, layers: Sequence[str]) -> TensorSpec:
        """Return the first matrices of several layers beside each other, (adapters, K, R)."""
        ranks = [self._rank(layer) for layer in layers]

        columns = self._shape(layers[0])[1]

        def stacked(each: Mapping[str, LayerMatrices]) -> Array:
            own = [each[layer].down() if layer in each else None for layer in layers]
            return np.concatenate([_padded(a, (rank, columns)) for a, rank in zip(own, ranks, strict=True)]).T

        return self._constant(("down", *layers), (columns, sum(ranks)), stacked)

    def up(self, layer: str) -> TensorSpec:
        """Return the second matrices of a layer, (adapters, R, N)."""
        shape = (self._rank(layer), self._shape(layer)[0])
        return self._constant(
            ("up", layer), shape, lambda each: _padded(each[layer].up() if layer in each else None, shape)
        )

    def _rank(self, layer: str) -> int:
        """Return the largest rank of a layer's adapters, rounded up. The rows of smaller ones are 0."""
        largest = max(each[layer].rank for each in self._matrices if layer in each)
        return -(-largest // _RANK_MULTIPLE) * _RANK_MULTIPLE

    def _shape(self, layer: str) -> tuple[int, ...]:
        return next(each[layer].shape for each in self._matrices if layer in each)

    def _constant(
        self, key: tuple[str, ...], shape: tuple[int, int], compute: Callable[[Mapping[str, LayerMatrices]], Array]
    ) -> TensorSpec:
        if key not in self._constants:
            name, size = f"adapters, {key[0]}: {' + '.join(key[1:])}", 4 * shape[0] * shape[1]
            first, *rest = (
                Span.computed(name, size, functools.partial(_bytes, compute, each)) for each in self._matrices
            )
            constant = Constant(first, DType.FLOAT32, name, tuple(rest))
            dims = (len(self._matrices), *shape)
            self._constants[key] = TensorSpec(DType.FLOAT32, dims, DType.FLOAT32, constant=constant)
        return self._constants[key]


NO_ADAPTERS = Adapters({})


def _padded(matrix: Array | None, shape: tuple[int, int]) -> Array:
    """Return a matrix with rows of 0 after its own."""
    padded = np.zeros(shape, "<f4")
    if matrix is not None:
        padded[: len(matrix)] = matrix
    return padded


def _bytes(compute: Callable[[Mapping[str, LayerMatrices]], Array], each: Mapping[str, LayerMatrices]) -> memoryview:
    return np.ascontiguousarray(compute(each), "<f4").data.cast("B")


def adapter_number(name: str | None, names: Sequence[str]) -> int:
    """Return the number of an adapter among those that are loaded, 0 for None."""
    if name is not None and name not in names:
        near = close_matches(name, names)
        raise InputError(
            argument="adapter",
            expected=f"one of {', '.join(names)}" if names else "None, as the model was loaded without adapters",
            got=described(name),
            code="unknown_adapter",
            hint=f"Did you mean {near[0]}?" if near else "Load it with adapters={name: folder}.",
        )
    return 0 if name is None else names.index(name) + 1


def check_adapters(adapters: object) -> dict[str, PathLike]:
    """Return the folders of adapters by name, checked."""
    if not isinstance(adapters, Mapping) or len(adapters) > MAX_ADAPTERS:
        raise InputError(
            argument="adapters",
            expected=f"a mapping of at most {MAX_ADAPTERS} names to folders",
            got=f"{len(adapters)} names" if isinstance(adapters, Mapping) else described(adapters),
        )
    for name, folder in adapters.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
            raise InputError(
                argument="adapters",
                expected=f"names of at most {MAX_NAME_CHARS} letters, digits, '-', '_' and '.'",
                got=described(name),
            )
        check_path(folder, f"adapters[{name!r}]")
    return dict(adapters)
