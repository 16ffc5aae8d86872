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

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import GraphError
from .delegate import COPY

ELEMENTWISE = "webpte.elementwise"
ROTARY_ATTENTION = "webpte.rotary_attention"
# Ops whose results go through a program, as its x0. Their further arguments are described in ops/matmul/epilogue.py.
FINISHED_LINEAR = "webpte.linear"  # aten.linear
MATMUL = "webpte.matmul"  # aten.addmm of operands in any layout, whose program may be None
PLAIN = "bhmk,bhkn->bhmn"  # the layout of its operands where nothing else is known: see ops/matmul/matmul.py
FINISHED_CONVOLUTION = "webpte.convolution"  # et_vk.conv_with_clamp
WITH_PROGRAM = {ELEMENTWISE, FINISHED_LINEAR, MATMUL, FINISHED_CONVOLUTION}

# The ops a step may be.
_UNARY = (
    "abs neg sign round ceil floor trunc exp log log10 sqrt rsqrt reciprocal sin cos tanh erf sigmoid silu hardswish "
    "gelu leaky_relu hardshrink relu clamp hardtanh logical_not bitwise_not"
)
_BINARY = "add sub rsub mul div bitwise_and bitwise_or bitwise_xor remainder fmod eq ne lt le gt ge"
_OTHERS = (
    "aten.div.Tensor_mode aten.div.Scalar_mode aten.floor_divide.default aten.floor_divide.Scalar "
    "aten.minimum.default aten.maximum.default aten.pow.Tensor_Scalar aten.pow.Tensor_Tensor aten.pow.Scalar "
    "aten.remainder.Scalar_Tensor aten.logical_and.default aten.logical_or.default aten.logical_xor.default "
    "aten.where.self"
)
# Their first argument, converted if need be; others say nothing about values. Steps of a program call them COPY.
COPIES = {
    COPY,
    "aten._to_copy.default",
    "aten.alias_copy.default",
    "aten.clone.default",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops._to_dim_order_copy.default",
}
JOINABLE = {
    *(f"aten.{name}.default" for name in _UNARY.split()),
    *(f"aten.{name}.{kind}" for name in _BINARY.split() for kind in ("Tensor", "Scalar")),
    *_OTHERS.split(),
}

# What functions cost to compile, in units of an addition; those not listed are as cheap. Measured, roughly.
WEIGHTS = {
    "cos": 4,
    "div_floor": 8,
    "div_trunc": 2,
    "erf": 4,
    "floor_divide": 8,
    "fmod": 8,
    "gelu": 4,
    "gelu_tanh": 4,
    "pow": 16,
    "remainder": 8,
    "sin": 4,
    "tanh": 4,
}


_BOUNDED = {"aten.clamp.default", "aten.hardtanh.default"}
_COMPARED = {f"aten.{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")}


def uniforms(name: str, numbers: int) -> int:
    """How many words of a parameter block a step takes that is given so many numbers."""
    return 2 if name in _BOUNDED else numbers + (name in _COMPARED)


class ProgramStep(NamedTuple):
    """One line of a program."""

    dtype: str
    name: str
    args: tuple[str, ...]


def format_program(steps: Sequence[ProgramStep], outputs: Sequence[str]) -> str:
    return "\n".join([*(" ".join((s.dtype, s.name, *s.args)) for s in steps), " ".join(("=", *outputs))])


def parse_program(text: str) -> tuple[tuple[ProgramStep, ...], tuple[str, ...]]:
    """Its steps and outputs."""
    *lines, last = text.split("\n")
    steps = [line.split(" ") for line in lines]
    if not steps or any(len(step) < 2 for step in steps) or not last.startswith("= "):
        raise GraphError(f"{text!r} is no elementwise program")
    return tuple(ProgramStep(dtype, name, tuple(args)) for dtype, name, *args in steps), tuple(last.split(" ")[1:])
