"""Elementwise programs: what one invocation computes for one element, as data.

A program is compiled in, so it holds no numbers: they are uniforms, and programs that differ in nothing else share a
pipeline. An op alone is a program of one step; `webpte.elementwise` has one of many.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...graph import WEIGHTS, DType, TensorSpec
from ...graph.expressions import EXPRESSIONS, Term
from ...lowering.context import Tensor
from ...lowering.numbers import HALVES, bits_of


def number_type(dtype: DType) -> str:
    """The WGSL type that values of a dtype are computed in, as in types.wgsl."""
    return "f32" if dtype in (DType.FLOAT32, *HALVES) else "i32"


class Number(NamedTuple):
    """An argument of a function that is no operand, such as a slope."""

    bits: Term
    type: str = "i32"

    @staticmethod
    def of(value: Term, dtype: DType = DType.FLOAT32) -> Number:
        """A number as the values of a dtype are computed."""
        return Number(bits_of(value, number_type(dtype) == "f32"), number_type(dtype))


class Formula(NamedTuple):
    """A function of formulas.wgsl and what it is applied to: what an elementwise op says of itself."""

    function: str
    operands: tuple[Tensor | Term, ...]
    types: tuple[DType, ...] = ()  # what the operands are converted to; by default all to the output's dtype
    numbers: tuple[Number, ...] = ()  # further arguments


class Operand(NamedTuple):
    """An argument of a step: input x<position>, an earlier result v<position>, or a number."""

    name: str
    position: int
    source: str | None  # its dtype; None for a number, which has the bits that `target` needs
    target: str  # the dtype it is converted to


class Step(NamedTuple):
    function: str
    number: str  # f32 or i32: what the function computes in
    operands: tuple[Operand, ...]
    result: str  # a dtype


@dataclass(frozen=True)
class Program:
    """Steps in order, each reading inputs, numbers and what came before it."""

    inputs: tuple[str, ...]  # dtypes
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]  # the steps whose results are written
    numbers: int
    live: bool = False  # some number comes from the data of an input: all are read through slots

    @functools.cached_property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """(name, number) of each function that is needed."""
        return tuple(dict.fromkeys((step.function, step.number) for step in self.steps))

    @functools.cached_property
    def output_types(self) -> tuple[str, ...]:
        return tuple(self.steps[step].result for step in self.outputs)

    @functools.cached_property
    def extension(self) -> str | None:
        """What the shader has to enable: among a kernel's flags, f16 says so to the templater."""
        return "f16" if "f16" in (*self.inputs, *self.output_types) else None

    @functools.cached_property
    def weight(self) -> int:
        """What it costs to compile, in units of an addition."""
        return sum(WEIGHTS.get(step.function, 1) for step in self.steps)

    @functools.cached_property
    def reached(self) -> tuple[frozenset[int], ...]:
        """The inputs that each output depends on."""
        below: list[frozenset[int]] = []
        for step in self.steps:
            own = {o.position for o in step.operands if o.name.startswith("x")}
            below.append(frozenset(own).union(*(below[o.position] for o in step.operands if o.name.startswith("v"))))
        return tuple(below[step] for step in self.outputs)

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.steps, self.outputs, self.numbers, self.live))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        calls = [f"{s.function}({','.join(o.name for o in s.operands)}):{s.result}" for s in self.steps[:4]]
        rest = len(self.steps) - len(calls)
        return ";".join(["/".join(self.inputs), *calls] + ([f"and {rest} more"] if rest else []))


class Writer:
    """Turns formulas into a program, the tensors it reads and the bits of its numbers."""

    def __init__(self, inputs: Sequence[Tensor] = ()) -> None:
        self.inputs: list[Tensor] = []
        self.numbers: list[Term] = []  # their bits
        self._steps: list[Step] = []
        self._names: dict[Tensor, tuple[str, int]] = {}
        for tensor in inputs:
            self._input(tensor)

    def add(self, formula: Formula, out: Tensor) -> None:
        """One step. Later formulas that have `out` among their operands read its result."""
        types = formula.types or (out.dtype,) * len(formula.operands)
        operands = [self._operand(o, t) for o, t in zip(formula.operands, types, strict=True)]
        operands += [self._number(number) for number in formula.numbers]
        self._names[out] = ("v", len(self._steps))
        self._steps.append(Step(formula.function, number_type(types[-1]), tuple(operands), out.dtype.short))

    def program(self, outputs: Sequence[Tensor], live: bool = False) -> Program:
        written = tuple(self._names[out][1] for out in outputs)
        types = tuple(tensor.dtype.short for tensor in self.inputs)
        return Program(types, tuple(self._steps), written, len(self.numbers), live)

    @property
    def bits(self) -> tuple[int, ...]:
        """Those of the numbers, none of which may be an expression."""
        return tuple(number for number in self.numbers if isinstance(number, int))

    def _operand(self, operand: Tensor | Term, dtype: DType) -> Operand:
        if not isinstance(operand, Tensor):
            return self._number(Number.of(operand, dtype))
        if operand not in self._names:
            self._input(operand)
        kind, position = self._names[operand]
        return Operand(f"{kind}{position}", position, operand.dtype.short, dtype.short)

    def _number(self, number: Number) -> Operand:
        self.numbers.append(number.bits)
        position = len(self.numbers) - 1
        return Operand(f"n{position}", position, None, number.type)

    def _input(self, tensor: Tensor) -> None:
        self._names[tensor] = ("x", len(self.inputs))
        self.inputs.append(tensor)


def symbol(dtype: DType) -> Tensor:
    """A tensor of which nothing is known but its dtype."""
    return Tensor(-1, TensorSpec(dtype, (), dtype))


def single_step(formula: Formula, out: Tensor) -> tuple[Program, list[Tensor], list[Term]]:
    """A formula as a program, what it reads, and the bits of its numbers. A known one costs a look-up."""
    inputs: list[Tensor] = []
    bits: list[Term] = []
    sources: list[tuple[int, DType] | None] = []
    types = formula.types or (out.dtype,) * len(formula.operands)
    for operand, dtype in zip(formula.operands, types, strict=True):
        if not isinstance(operand, Tensor):
            bits.append(Number.of(operand, dtype).bits)
            sources.append(None)
            continue
        if operand not in inputs:
            inputs.append(operand)
        sources.append((inputs.index(operand), operand.dtype))
    bits += [number.bits for number in formula.numbers]
    kinds = tuple(number.type for number in formula.numbers)
    live = any(isinstance(number, EXPRESSIONS) for number in bits)
    return _single(formula.function, tuple(sources), types, kinds, out.dtype, live), inputs, bits


@functools.cache
def _single(
    function: str,
    sources: tuple[tuple[int, DType] | None, ...],
    types: tuple[DType, ...],
    kinds: tuple[str, ...],
    result: DType,
    live: bool,
) -> Program:
    inputs = {position: symbol(dtype) for position, dtype in filter(None, sources)}
    operands = tuple(0 if source is None else inputs[source[0]] for source in sources)
    out = symbol(result)
    writer = Writer()
    writer.add(Formula(function, operands, types, tuple(Number(0, kind) for kind in kinds)), out)
    return writer.program([out], live)
