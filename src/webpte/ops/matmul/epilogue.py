"""Elementwise programs at the end of another op: its results go through them on their way to memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ShapeError
from ...graph import DType, numel
from ...lowering.context import Dims, Tensor
from ...lowering.programs import compile_program
from ...lowering.shapes import broadcast, broadcast_strides, coalesce, strides
from ..elementwise.elementwise import evaluate
from .product import CompiledEpilogue


@dataclass(frozen=True)
class Epilogue:
    """The arguments that a call with a program has beside those of its op. x0 of the program is the op's result."""

    program: str
    tensors: list[Tensor]  # x1 and what follows
    numbers: list[int | float]
    like: Tensor | None = None  # has the output's shape, if that is not the op's: views were passed over

    def shape(self, dims: Dims) -> Dims:
        """The output's, where the op's result has `dims`."""
        if self.like is None:
            return dims
        if self.like.numel != numel(dims):
            raise ShapeError(
                f"result {list(dims)} and epilogue {list(self.like.dims)} differ in size", code="operand_mismatch"
            )
        return self.like.dims

    def compile(self, dtype: DType, dims: Dims, split: tuple[int, int]) -> CompiledEpilogue:
        """For a result of this dtype and these dims, of which split[0] are batch and those from split[1] on columns."""
        dtypes = (dtype, *(tensor.dtype for tensor in self.tensors))
        kinds = tuple(type(number) for number in self.numbers)
        program, bits = compile_program(self.program, dtypes, tuple(self.numbers), kinds)
        operands = tuple((tensor, _strides(tensor.dims, dims, split)) for tensor in self.tensors)
        return CompiledEpilogue(program, bits, operands)


def _strides(dims: Dims, result: Dims, split: tuple[int, int]) -> Dims:
    """How an operand is read along the (batch, row, column) of a result."""
    layout = strides(result)  # as many elements are the result's in the same order, whatever their shape
    if numel(dims) != numel(result):
        extra = max(0, len(dims) - len(result))
        if numel(dims[:extra]) != 1 or broadcast(dims[extra:], result) != result:
            raise ShapeError(f"operand {list(dims)} does not broadcast to the result {list(result)}", code="broadcast")
        layout = broadcast_strides(dims[extra:], result)
    axes = (slice(0, split[0]), slice(*split), slice(split[1], None))
    merged = [coalesce(result[axis], layout[axis])[1][0] for axis in axes]
    if any(len(steps) > 1 for steps in merged):
        raise ShapeError(f"operand {list(dims)} has no single stride along the result {list(result)}", code="broadcast")
    return tuple(steps[0] if steps else 0 for steps in merged)


def applied(result: Any, epilogue: Epilogue) -> Any:
    """The reference: what a program makes of an op's result."""
    like: Any = epilogue.like
    dims = result.shape if like is None else like.shape
    (computed,) = evaluate(epilogue.program, [result.reshape(dims), *epilogue.tensors], epilogue.numbers)
    return computed.reshape(dims)
