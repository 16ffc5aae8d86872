"""A batched runner whose rows have adapters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...fusion.adapters import AdapterMatrices, with_adapters
from ...fusion.batching import AS_STORED, TOKENS, CacheDtypes
from ...graph import Graph
from ...progress import OnProgress, ignore
from ...runtime import Program
from ...typing import Array
from .encoder import FORWARD, LanguageMethods
from .runner import BatchedRunner


class AdapterRunner(BatchedRunner):
    """Runs tokens of any slots side by side, each with its adapter."""

    def __init__(
        self,
        program: Program,
        max_slots: int,
        caches: CacheDtypes = AS_STORED,
        progress: OnProgress = ignore,
        model: LanguageMethods = FORWARD,
        *,
        adapters: AdapterMatrices,
    ) -> None:
        self._adapters = adapters
        super().__init__(program, max_slots, caches, progress, model)

    def rewritten(self, graph: Graph, num_slots: int) -> Graph:
        rows = graph.tensor(graph.inputs[TOKENS]).dims[1]
        return with_adapters(super().rewritten(graph, num_slots), self._adapters, rows)

    def inputs(self, table: Array, num_decode: int, picked: Array, packed: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*super().inputs(table, num_decode, picked, packed), table[:, 3].astype(np.int32))
