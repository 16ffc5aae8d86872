"""Elementwise programs: the computation of one element by one invocation, as data.

A program is compiled in, so it holds no numbers: they are uniforms. Programs that differ only in numbers share a
pipeline. An op alone is a program of one step; `webpte.elementwise` has one of many.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..graph import DType, parse_program
from ..graph.expressions import EXPRESSIONS, Term
from .context import Tensor
from .formulas import Describe, Formula, Number, number_type, symbol, weight_of
from .registry import formula_of

_DTYPES = {dtype.short: dtype for dtype in DType}


class ProgramOperand(NamedTuple):
    """An argument of a step: input x<position>, an earlier result v<position>, or a number."""

    name: str
    position: int
    source: str | None  # its dtype; None for a number, which has the bits that `target` needs
    target: str  # the dtype it is converted to


class Operation(NamedTuple):
    function: str
    number: str  # f32 or i32: the type of the function
    operands: tuple[ProgramOperand, ...]
    result: str  # a dtype
    code: str | None = None  # of a function that is not ours

    @property
    def signature(self) -> tuple[str | None, ...]:
        """Return a key that is equal for steps that can call one custom function."""
        return (self.function, self.number, self.code, *(operand.target for operand in self.operands))


@dataclass(frozen=True)
class ElementwiseProgram:
    """Steps in order, each reading inputs, numbers and what came before it."""

    inputs: tuple[str, ...]  # dtypes
    steps: tuple[Operation, ...]
    outputs: tuple[int, ...]  # the steps whose results are written
    numbers: int
    dynamic: bool = False  # some number comes from the data of an input: all are read through slots

    @functools.cached_property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """Return (name, number) of each function of formulas.wgsl that is needed."""
        return tuple(dict.fromkeys((step.function, step.number) for step in self.steps if step.code is None))

    @functools.cached_property
    def own(self) -> tuple[Operation, ...]:
        """Return the first step of each function that is not in formulas.wgsl."""
        return tuple({step.signature: step for step in reversed(self.steps) if step.code is not None}.values())

    def called(self, step: Operation) -> str:
        """Return the name of a step's function in the shader."""
        if step.code is None:
            return f"{step.function}_{step.number}"
        return f"own_{step.function}_{[other.signature for other in self.own].index(step.signature)}"

    @functools.cached_property
    def output_types(self) -> tuple[str, ...]:
        return tuple(self.steps[step].result for step in self.outputs)

    @functools.cached_property
    def weight(self) -> int:
        """Return the compile time in units of an addition."""
        return sum(weight_of(step.function, step.code) for step in self.steps)

    @functools.cached_property
    def reached(self) -> tuple[frozenset[int], ...]:
        """Return the inputs that each output depends on."""
        below: list[frozenset[int]] = []
        for step in self.steps:
            own = {o.position for o in step.operands if o.name.startswith("x")}
            below.append(frozenset(own).union(*(below[o.position] for o in step.operands if o.name.startswith("v"))))
        return tuple(below[step] for step in self.outputs)

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.steps, self.outputs, self.numbers, self.dynamic))

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
        self._steps: list[Operation] = []
        self._names: dict[Tensor, tuple[str, int]] = {}
        for tensor in inputs:
            self._input(tensor)

    def add(self, formula: Formula, out: Tensor) -> None:
        """Add a step. Later formulas that have `out` among their operands read its result."""
        types = formula.types or (out.dtype,) * len(formula.operands)
        operands = [self._operand(o, t) for o, t in zip(formula.operands, types, strict=True)]
        operands += [self._number(number) for number in formula.numbers]
        self._names[out] = ("v", len(self._steps))
        computed = number_type(types[-1])
        self._steps.append(Operation(formula.function, computed, tuple(operands), out.dtype.short, formula.code))

    def program(self, outputs: Sequence[Tensor], dynamic: bool = False) -> ElementwiseProgram:
        written = tuple(self._names[out][1] for out in outputs)
        types = tuple(tensor.dtype.short for tensor in self.inputs)
        return ElementwiseProgram(types, tuple(self._steps), written, len(self.numbers), dynamic)

    @property
    def bits(self) -> tuple[int, ...]:
        """Return the bits of the numbers, none of which may be an expression."""
        return tuple(number for number in self.numbers if isinstance(number, int))

    def _operand(self, operand: Tensor | Term, dtype: DType) -> ProgramOperand:
        if not isinstance(operand, Tensor):
            return self._number(Number.of(operand, dtype))
        if operand not in self._names:
            self._input(operand)
        kind, position = self._names[operand]
        return ProgramOperand(f"{kind}{position}", position, operand.dtype.short, dtype.short)

    def _number(self, number: Number) -> ProgramOperand:
        self.numbers.append(number.bits)
        position = len(self.numbers) - 1
        return ProgramOperand(f"n{position}", position, None, number.type)

    def _input(self, tensor: Tensor) -> None:
        self._names[tensor] = ("x", len(self.inputs))
        self.inputs.append(tensor)


def single_step(formula: Formula, out: Tensor) -> tuple[ElementwiseProgram, list[Tensor], list[Term]]:
    """Return a formula as a program, its tensors, and the bits of its numbers. Programs are cached."""
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
    number_types = tuple(number.type for number in formula.numbers)
    dynamic = any(isinstance(number, EXPRESSIONS) for number in bits)
    return (
        _single(
            formula.function,
            formula.code,
            sources=tuple(sources),
            types=types,
            number_types=number_types,
            result=out.dtype,
            dynamic=dynamic,
        ),
        inputs,
        bits,
    )


@functools.cache
def _single(
    function: str,
    code: str | None,
    sources: tuple[tuple[int, DType] | None, ...],
    types: tuple[DType, ...],
    number_types: tuple[str, ...],
    result: DType,
    dynamic: bool,
) -> ElementwiseProgram:
    inputs = {position: symbol(dtype) for position, dtype in filter(None, sources)}
    operands = tuple(0 if source is None else inputs[source[0]] for source in sources)
    out = symbol(result)
    writer = Writer()
    writer.add(Formula(function, operands, types, tuple(Number(0, kind) for kind in number_types), code), out)
    return writer.program([out], dynamic)


def compile_program(
    text: str, dtypes: tuple[DType, ...], numbers: tuple[float, ...], number_types: tuple[type, ...]
) -> tuple[ElementwiseProgram, tuple[int, ...]]:
    """Return a program and the bits of its numbers. `number_types` distinguishes equal numbers, such as 1 and 1.0."""
    formulas = tuple(formula_of(step.name) for step in parse_program(text)[0])  # a custom one may be incomplete
    return _compiled(text, formulas, dtypes, numbers, number_types)


@functools.lru_cache(maxsize=1024)
def _compiled(
    text: str,
    formulas: tuple[Describe, ...],
    dtypes: tuple[DType, ...],
    numbers: tuple[float, ...],
    number_types: tuple[type, ...],
) -> tuple[ElementwiseProgram, tuple[int, ...]]:
    steps, outputs = parse_program(text)
    inputs = [symbol(dtype) for dtype in dtypes]
    terms: dict[str, Any] = {f"x{i}": tensor for i, tensor in enumerate(inputs)}
    terms |= {f"n{i}": number for i, number in enumerate(numbers)}
    writer = Writer(inputs)
    for position, (step, describe) in enumerate(zip(steps, formulas, strict=True)):
        result = symbol(_DTYPES[step.dtype])
        writer.add(describe(*(argument_of(terms, name) for name in step.args), out=result), result)
        terms[f"v{position}"] = result
    return writer.program([terms[name] for name in outputs]), writer.bits


def argument_of(terms: dict[str, Any], name: str) -> Any:
    """Return the value of an argument in a program's text: a name, a quoted word, a factor of 1, or None."""
    if name.startswith("'"):
        return name.strip("'")
    return {"-": None, "1": 1}[name] if name in "-1" else terms[name]
