"""A vocabulary as large as Gemma 3's, embedding and head, under the limits that browsers have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import webpte
from tests.cases.embedding.embedding_byte import BYTE
from tests.cases.embedding.embedding_q4 import Q4 as EMBEDDING_Q4
from tests.cases.q4.linear_q4 import INT8
from tests.cases.q4.linear_q4 import Q4 as LINEAR_Q4
from tests.support.harness.cases import assert_close
from tests.support.harness.writer import Stream, simple_pte
from webpte import container as c
from webpte.container import DType

GROUP = 32


@dataclass(frozen=True)
class Vocabulary:
    """`forward` takes tokens (T,) and gives the logits (T, rows) of their own embeddings."""

    rows: int = 262144  # Gemma 3 1B's
    width: int = 1152
    bits: int = 4
    block: int = 4096  # rows made at once

    @property
    def bytes(self) -> int:
        """Return the size of one of the two tables of codes."""
        return self.rows * self.width * self.bits // 8

    def codes(self, block: int, table: int) -> np.ndarray:
        """(block, width) from -8 or -128, different in every row."""
        low = -(1 << self.bits - 1)
        random = np.random.default_rng([block, table])
        return random.integers(low, -low, (self.block, self.width), np.int8)

    def scales(self, rows: np.ndarray) -> np.ndarray:
        """(len(rows), groups)"""
        groups = np.arange(self.width // GROUP if self.bits == 4 else 1, dtype=np.int64)
        return ((rows[:, None] * 7 + groups * 13) % 97 + 1).astype(np.float32) / (4096 if self.bits == 4 else 65536)

    def weight(self, rows: np.ndarray, table: int) -> np.ndarray:
        """(len(rows), width)"""
        codes = np.stack([self.codes(row // self.block, table)[row % self.block] for row in rows])
        scales = self.scales(rows)
        return codes * np.repeat(scales, self.width // scales.shape[1], axis=1)

    def write(self, path: Path, tokens: int) -> None:
        (embedding, head), every = (self._stream(0), self._stream(1)), self.scales(np.arange(self.rows))
        kind, columns = (DType.UINT8, self.width // 2) if self.bits == 4 else (DType.INT8, self.width)
        # Where one row has one scale, its op takes them in one dim.
        shapes = [every.shape, every.T.shape] if self.bits == 4 else [(self.rows,)] * 2
        constants: list[Stream | np.ndarray] = [embedding, head, every, np.ascontiguousarray(every.T)]
        values: list[c.VkValue] = [
            c.VkTensor(DType.INT32, (tokens,)),
            c.VkTensor(kind, (self.rows, columns), constant_id=0),
            c.VkTensor(kind, (self.rows, columns), constant_id=1),
            c.VkTensor(DType.FLOAT32, shapes[0], constant_id=2),
            c.VkTensor(DType.FLOAT32, shapes[1], constant_id=3),
            c.VkTensor(DType.FLOAT32, (tokens, self.width)),
            c.VkTensor(DType.FLOAT32, (tokens, self.rows)),
            c.VkInt(GROUP),
            c.VkBool(False),
            c.VkNull(),
            c.VkInt(-128),
            c.VkInt(127),
        ]
        calls: list[tuple[str, list[int]]] = [(BYTE, [1, 3, 9, 10, 11, 0, 5]), (INT8, [5, 2, 4, 6])]
        if self.bits == 4:
            calls = [(EMBEDDING_Q4, [1, 3, 7, 0, 8, 5]), (LINEAR_Q4, [5, 2, 4, 7, 9, 6])]
        simple_pte(path, values, calls, [0], [5, 6], constants)

    def _stream(self, table: int) -> Stream:
        def parts() -> Iterator[bytes]:
            for block in range(self.rows // self.block):
                codes = self.codes(block, table)
                if self.bits == 4:
                    pairs = (codes + 8).astype(np.uint8)
                    # An embedding has the first of a pair in the upper half, a linear layer in the lower one.
                    first, second = (0, 1) if table == 0 else (1, 0)
                    codes = (pairs[:, first::2] << 4 | pairs[:, second::2]).view(np.int8)
                yield codes.tobytes()

        return Stream(self.bytes, parts)

    def check(self, path: Path, limits: Mapping[str, int] | None = None) -> dict[str, int]:
        """Write it, run it under the limits, compare rows from all over the tables; returns the limits it kept."""
        tokens = np.linspace(0, self.rows - 1, 5).astype(np.int32)
        self.write(path, len(tokens))
        sampled = np.linspace(0, self.rows - 1, 53).astype(np.int64)
        rows = self.weight(tokens.astype(np.int64), 0)
        with webpte.load(path, limits=limits) as program:
            method = program.method()
            embedded, logits = method(tokens)
            assert_close(embedded, rows, 1e-6, 1e-6, "embedding")
            assert_close(logits[:, sampled], rows @ self.weight(sampled, 1).T, 1e-3, 1e-4, "head")
            assert np.isfinite(logits).all() and (logits != 0).mean() > 0.99
            return dict(method.plan.limits)
