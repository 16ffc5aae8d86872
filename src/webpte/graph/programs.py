"""The text of an elementwise program, which a joined call carries as its first argument.

    f32 aten.mul.Tensor x0 n0
    f32 aten.gelu.default v0 'tanh'
    f32 aten.add.Tensor v1 x1 1
    = v2

A line is a step: the dtype of its result, an op and its arguments. `x0` is the call's first tensor, `n0` its first
number, `v0` the result of the first step, `-` is None and `1` a factor of 1. The last line names the results that are
written.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import GraphError

PLAIN = "bhmk,bhkn->bhmn"  # the layout of the operands of MATMUL where nothing else is known: see ops/matmul/matmul.py


class ProgramLine(NamedTuple):
    """One line of a program."""

    dtype: str
    name: str
    args: tuple[str, ...]


def format_program(steps: Sequence[ProgramLine], outputs: Sequence[str]) -> str:
    return "\n".join([*(" ".join((s.dtype, s.name, *s.args)) for s in steps), " ".join(("=", *outputs))])


@functools.lru_cache(maxsize=1024)
def parse_program(text: str) -> tuple[tuple[ProgramLine, ...], tuple[str, ...]]:
    """Its steps and outputs."""
    *lines, last = text.split("\n")
    steps = [line.split(" ") for line in lines]
    if not steps or any(len(step) < 2 for step in steps) or not last.startswith("= "):
        raise GraphError(f"{text!r} is no elementwise program", code="elementwise_program")
    return tuple(ProgramLine(dtype, name, tuple(args)) for dtype, name, *args in steps), tuple(last.split(" ")[1:])
