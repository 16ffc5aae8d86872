"""What a product does with its results before it stores them: an elementwise program, see epilogue.wgsl."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import ShapeError
from ...graph import DType, ProgramLine, format_program, numel
from ...lowering.context import Arrays, Dims, Tensor
from ...lowering.programs import ElementwiseProgram, compile_program
from ...lowering.shapes import broadcast, broadcast_strides, coalesce, strides
from ...wgsl import Uniforms, dims4, words
from ..elementwise.elementwise import evaluate


class CompiledEpilogue(NamedTuple):
    """An epilogue for results of one shape. Without a program, results are stored as they are."""

    program: ElementwiseProgram | None = None
    bits: tuple[int, ...] = ()  # of its numbers
    operands: tuple[tuple[Tensor, Dims], ...] = ()  # its inputs after the results, with strides: batch, row, column
    products: int = 1  # its first inputs

    @property
    def arrays(self) -> Arrays:
        """Return the operands by the names that they have in epilogue.wgsl."""
        return {f"x{number}_data": tensor for number, (tensor, _) in enumerate(self.operands, self.products)}

    def extend(self, params: Uniforms) -> Uniforms:
        """Return the parameters of a kernel with those of the program."""
        if not self.operands and not self.bits:
            return params
        values = {f"x{number}_strides": steps for number, (_, steps) in enumerate(self.operands, self.products)}
        if self.bits:
            values["numbers"] = self.bits
        kind: Any = type(params)
        return _block(kind, self.products, len(self.operands), len(self.bits))(**vars(params), **values)


STORED = CompiledEpilogue()


@functools.cache
def _block(params: type[Uniforms], first: int, operands: int, numbers: int) -> type[Uniforms]:
    """Return a parameter block with fields for the strides of the operands, from x`first` on, and the numbers."""
    fields: dict[str, Any] = {f"x{first + i}_strides": dims4 for i in range(operands)}
    if numbers:
        fields["numbers"] = words(-(-numbers // 4))
    return type(params.__name__, (params,), {"__annotations__": fields})


@dataclass(frozen=True)
class Epilogue:
    """The arguments of a call with a program.

    The first inputs of the program are the results of the products that the call computes, x0, or x0 and x1.
    """

    program: str | None
    tensors: list[Tensor] | None  # the inputs that follow
    numbers: list[int | float] | None
    like: Tensor | None = None  # has the output's shape, if that is not the op's: views were passed over

    def shape(self, dims: Dims) -> Dims:
        """Return the output's shape if the op's result has `dims`."""
        if self.like is None:
            return dims
        if self.like.numel != numel(dims):
            raise ShapeError(
                f"result {list(dims)} and epilogue {list(self.like.dims)} differ in size", code="operand_mismatch"
            )
        return self.like.dims

    def compile(self, dtype: DType, dims: Dims, split: tuple[int, int], products: int = 1) -> CompiledEpilogue:
        """Return the program for results of `dtype` and `dims`. split[0] ends the batch, split[1] starts columns."""
        if self.program is None:
            return STORED._replace(products=products)
        tensors, numbers = self.tensors or [], self.numbers or []
        dtypes = (*[dtype] * products, *(tensor.dtype for tensor in tensors))
        program, bits = compile_program(self.program, dtypes, tuple(numbers), tuple(map(type, numbers)))
        operands = tuple((tensor, _operand_strides(tensor.dims, dims, split)) for tensor in tensors)
        return CompiledEpilogue(program, bits, operands, products)


NO_EPILOGUE = Epilogue(None, None, None)


def clamp_epilogue(low: int | float | None, high: int | float | None, dtype: DType) -> Epilogue:
    """Return the epilogue that keeps results of a dtype between two bounds. None does not limit."""
    numbers = [bound for bound in (low, high) if bound is not None]
    if not numbers:
        return NO_EPILOGUE
    bounds = ("-" if low is None else "n0", "-" if high is None else f"n{len(numbers) - 1}")
    clamp = ProgramLine(dtype.short, "aten.clamp.default", ("x0", *bounds))
    return Epilogue(format_program([clamp], ["v0"]), [], numbers)


def _operand_strides(dims: Dims, result: Dims, split: tuple[int, int]) -> Dims:
    """Return the strides of an operand along the (batch, row, column) of a result."""
    layout = strides(result)  # an operand of the same size has the result's order, in any shape
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


def applied(results: Sequence[Any], epilogue: Epilogue) -> Any:
    """Return the results of an op's products after its program, for references."""
    if epilogue.program is None:
        return results[0]
    like: Any = epilogue.like
    dims = results[0].shape if like is None else like.shape
    inputs = [*(result.reshape(dims) for result in results), *(epilogue.tensors or [])]
    (computed,) = evaluate(epilogue.program, inputs, epilogue.numbers or [])
    return computed.reshape(dims)
