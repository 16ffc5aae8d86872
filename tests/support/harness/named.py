"""A program to try the whole surface on: names of inputs and outputs, a state, a method that gives a number.

`forward(x, y)` gives `sum`, x + y plus what the state has counted, and a second output without a name, x * y. The state
counts the calls. `get_size` gives 7.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.harness.writer import ALONE, Method, pte_file, span_of
from webpte import container as c

BOUND = (5, 7)
X = np.arange(35, dtype=np.float32).reshape(BOUND)
Y = np.full(BOUND, 2, np.float32)


def named_pte(path: Path) -> Path:
    x, y, total = (_tensor(BOUND, name=name, dynamic=True) for name in ("x", "y", "sum"))
    product, part = _tensor(BOUND, dynamic=True), _tensor(BOUND, dynamic=True)
    count, counted = _tensor((1,)), _tensor((1,))
    one = c.TensorValue(c.DType.FLOAT32, (1,), (0,), data=span_of(np.ones(1, np.float32)))
    values = [x, y, c.IntValue(1), part, total, product, count, counted, one, c.BoolValue(False)]
    instructions = [
        c.KernelCall("aten::add.out", (0, 1, 2, 3, 3)),
        c.KernelCall("aten::add.out", (3, 6, 2, 4, 4)),
        c.KernelCall("aten::mul.out", (0, 1, 5, 5)),
        c.KernelCall("aten::add.out", (6, 8, 2, 7, 7)),
        c.KernelCall("aten::copy_", (6, 7, 9, 6)),
    ]
    forward = Method(values=values, inputs=[0, 1], outputs=[4, 5], instructions=instructions)
    size = Method("get_size", values=[c.IntValue(7)], inputs=[], outputs=[0], instructions=[])
    pte_file(path, [forward, size])
    return path


def _tensor(dims: tuple[int, ...], name: str | None = None, dynamic: bool = False) -> c.TensorValue:
    order = tuple(range(len(dims)))
    return c.TensorValue(c.DType.FLOAT32, dims, order, dynamic=dynamic, place=ALONE, name=name)
