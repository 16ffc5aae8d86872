"""Small programs with NumPy's answers, to try a device out with: are its numbers right?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import DType, Graph, Int, ValueList
from .probes import Probe

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Trial:
    """A graph, what it is given, and what must come out, but for an error."""

    graph: Graph
    inputs: Sequence[Array]
    wanted: Array
    tolerance: float = 1e-5


def linear_softmax() -> Trial:
    """softmax(x @ w.T + b) against NumPy in float64, in sizes that no workgroup divides."""
    rows, inner, outer = 13, 129, 67
    b = Probe()
    x, w, bias = b.tensor(rows, inner), b.tensor(outer, inner), b.tensor(outer)
    logits = b.call("aten.linear.default", x, w, bias, out=b.tensor(rows, outer))
    last, full = b.add(Int(-1)), b.null()
    out = b.call("aten._softmax.default", logits, last, full, out=b.tensor(rows, outer))
    generator = np.random.default_rng(0)
    given = [generator.standard_normal(size).astype(np.float32) for size in ((rows, inner), (outer, inner), (outer,))]
    wide = [array.astype(np.float64) for array in given]
    exponents = wide[0] @ wide[1].T + wide[2]  # (rows, outer)
    powers = np.exp(exponents - exponents.max(-1, keepdims=True))
    return Trial(b.graph([x, w, bias], [out]), given, powers / powers.sum(-1, keepdims=True))


def half_precision() -> Trial:
    """x + y in float16, which devices without it compute in float32."""
    b = Probe()
    x, y = b.tensor(501, dtype=DType.FLOAT16), b.tensor(501, dtype=DType.FLOAT16)
    out = b.call("aten.add.Tensor", x, y, b.add(Int(1)), out=b.tensor(501, dtype=DType.FLOAT16))
    given = [np.linspace(-1, 1, 501).astype(np.float16), np.linspace(3, 0, 501).astype(np.float16)]
    return Trial(b.graph([x, y], [out]), given, given[0] + given[1], 2e-3)


def integers() -> Trial:
    """Sums of 32-bit integers along a dim, exactly."""
    b = Probe()
    x = b.tensor(31, 257, dtype=DType.INT32)
    dims, keep = b.add(ValueList((b.add(Int(1)),))), b.add(Int(0))
    out = b.call("aten.sum.dim_IntList", x, dims, keep, b.null(), out=b.tensor(31, dtype=DType.INT32))
    given = np.random.default_rng(1).integers(-1000, 1000, (31, 257), dtype=np.int32)
    return Trial(b.graph([x], [out]), [given], given.sum(1), 0.0)


TRIALS: dict[str, Callable[[], Trial]] = {
    "float32 linear and softmax": linear_softmax,
    "float16 addition": half_precision,
    "int32 sums": integers,
}
