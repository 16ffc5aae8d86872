"""A program with a weight and a state, whose every answer shows what it has seen: the n-th call gives n * (x + w)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.harness.writer import ALONE, Method, pte_file, span_of
from webpte import container as c

SHAPE = (5, 7)
X = np.arange(35, dtype=np.float32).reshape(SHAPE)


def counting_pte(path: Path, weight: int = 1) -> Path:
    """Write it; all numbers in it are small integers, so that answers are exact."""
    tensor = c.TensorValue(c.DType.FLOAT32, SHAPE, (0, 1), place=ALONE)
    weights = np.full(SHAPE, weight, np.float32)
    constant = c.TensorValue(c.DType.FLOAT32, SHAPE, (0, 1), data=span_of(weights))
    values = [tensor, tensor, c.IntValue(1), tensor, c.BoolValue(False), constant, tensor]
    instructions = [
        c.KernelCall("aten::add.out", (0, 5, 2, 6, 6)),
        c.KernelCall("aten::add.out", (1, 6, 2, 3, 3)),
        c.KernelCall("aten::copy_", (1, 3, 4, 1)),
    ]
    pte_file(path, [Method(values=values, inputs=[0], outputs=[3], instructions=instructions)])
    return path


def answer(weight: int, calls: int) -> np.ndarray:
    """Return what the call with that number gives, after a reset."""
    return calls * (X + weight)
