"""Running elementwise programs: single ops, and chains of them that a graph pass has joined."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import ShapeError
from ...graph import DType, parse_program
from ...graph.names import ELEMENTWISE
from ...lowering import dim_rules
from ...lowering.context import Context, Dims, Tensor
from ...lowering.formulas import Describe, Formula
from ...lowering.integers import NO_INTEGERS, Integers
from ...lowering.programs import ElementwiseProgram, argument_of, compile_program, single_step
from ...lowering.registry import WORDS, Op, op, registered
from ...lowering.shapes import broadcast, walk
from ...lowering.traits import OpTraits
from ...wgsl import Live, LiveInt, Uniforms, dims4, dims8, u32, words

UNROLLED = 8  # weight of a program; a heavier one computes one element an invocation: four copies compile too long
TARGET_INVOCATIONS = 16384  # with more elements than these hold, each invocation computes several
_DTYPES = {dtype.short: dtype for dtype in DType}


def elementwise(
    *names: str,
    kernels: tuple[str, ...] = (),
    dtypes: frozenset[DType] = WORDS,
    numbers: tuple[str, ...] = (),
    integers: Integers = NO_INTEGERS,
) -> Callable[[Describe], Op]:
    """Register an op by its formula: a function of the op's arguments and `out` that reads only their dtypes."""

    def register(describe: Describe) -> Op:
        @functools.wraps(describe)
        def lower(cx: Context, *args: Any, out: Tensor) -> None:
            apply(cx, describe(*args, out=out), out)

        operands = [name for name in inspect.signature(describe).parameters if name != "out"]
        dims = dim_rules.broadcast(*operands)
        traits = OpTraits(dims=dims, elementwise=describe, numbers=numbers, integers=integers)
        return op(*names, kernels=kernels, dtypes=dtypes, traits=traits)(lower)

    return register


def apply(cx: Context, formula: Formula, out: Tensor) -> None:
    """Dispatch a program of one step."""
    program, inputs, bits = single_step(formula, out)
    out.dims = broadcast(*(tensor.dims for tensor in inputs))
    _run(cx, program, inputs, [cx.dynamic(b) for b in bits], [out])


class Access(NamedTuple):
    """How the operands are read: `width` neighbors at once, or one element for all of them."""

    dims: Dims
    layouts: dict[int, Dims]  # of the operands that are walked, along `dims`; empty if all are read in order
    width: int
    repeated: tuple[int, ...]  # operands that have one element where others have `width`
    single: tuple[int, ...]  # of the repeated ones, those of one element


def _access(out: Tensor, inputs: Sequence[Tensor], width: int) -> Access:
    dims = out.dims
    if all(tensor.dims == dims for tensor in inputs):
        return Access((), {}, width, (), ())
    count = out.numel
    single = tuple(i for i, tensor in enumerate(inputs) if tensor.numel == 1 != count)
    others = [i for i in range(len(inputs)) if i not in single]
    walked = walk(out, *(inputs[i] for i in others))
    if walked.flat:
        return Access((), {}, width, single, single)
    *outer, inner = walked.dims
    fits = inner % width == 0 and all(
        layout[-1] == 0 or (layout[-1] == 1 and all(step % width == 0 for step in layout[:-1]))
        for layout in walked.layouts
    )
    if not fits or width == 1:
        return Access(walked.dims, dict(zip(others, walked.layouts, strict=True)), 1, single, single)
    layouts = {i: _in_vectors(layout, width) for i, layout in zip(others, walked.layouts, strict=True)}
    repeated = tuple(i for i, layout in layouts.items() if layout[-1] == 0)
    return Access((*outer, inner // width), layouts, width, (*single, *repeated), single)


def _in_vectors(layout: Dims, width: int) -> Dims:
    """Return strides in units of `width` elements, for operands that are read in vectors."""
    return layout if layout[-1] == 0 else (*(step // width for step in layout[:-1]), 1)


@functools.cache
def _block(walked: tuple[int, ...], wide: bool, numbers: int, dynamic: bool) -> type[Uniforms]:
    """Return the parameter block of a program. The bits of its numbers are one field, unless they have slots."""
    dims = dims8 if wide else dims4
    fields: dict[str, Any] = {"count": u32, "each": u32}
    if walked:
        fields |= {"rank": u32, "dims": dims, **{f"x{i}_strides": dims for i in walked}}
    if dynamic:
        fields |= {f"number{i}": Live for i in range(numbers)}
    elif numbers:
        fields["numbers"] = words(-(-numbers // 4))
    return type("Elementwise", (Uniforms,), {"__annotations__": fields})


def _run(
    cx: Context,
    program: ElementwiseProgram,
    inputs: Sequence[Tensor],
    numbers: Sequence[LiveInt],
    outs: Sequence[Tensor],
) -> None:
    """Compute every element of `outs`, whose dims are set and equal."""
    access = _access(outs[0], inputs, 4 if program.weight <= UNROLLED else 1)
    count = -(-outs[0].numel // access.width)
    each = min(max(count // TARGET_INVOCATIONS, 1), 16)
    values: dict[str, Any] = {"count": count, "each": each}
    if access.layouts:
        values |= {"rank": len(access.dims), "dims": access.dims}
        values |= {f"x{i}_strides": layout for i, layout in access.layouts.items()}
    if program.dynamic:
        values |= {f"number{i}": number for i, number in enumerate(numbers)}
    elif numbers:
        values["numbers"] = [number.value for number in numbers]
    block = _block(tuple(access.layouts), len(access.dims) > 4, len(numbers), program.dynamic)
    cx.dispatch(
        "elementwise/elementwise.wgsl",
        reads={f"x{i}_data": tensor for i, tensor in enumerate(inputs)},
        writes={f"y{i}_data": tensor for i, tensor in enumerate(outs)},
        params=block(**values),
        threads=-(-count // each),
        program=program,
        width=access.width,
        flat=not access.layouts,
        repeated=access.repeated,
        single=access.single,
    )


@op(ELEMENTWISE, traits=OpTraits(dims=dim_rules.broadcast_members("tensors")))
def joined(cx: Context, program: str, tensors: list[Tensor], numbers: list[int | float], *, out: list[Tensor]) -> None:
    number_types = tuple(type(number) for number in numbers)
    compiled, bits = compile_program(program, tuple(t.dtype for t in tensors), tuple(numbers), number_types)
    dims = broadcast(*(tensor.dims for tensor in tensors))
    for tensor, reached in zip(out, compiled.reached, strict=True):
        if broadcast(*(tensors[i].dims for i in reached)) != dims:
            shapes = ", ".join(str(list(t.dims)) for t in tensors)
            raise ShapeError(
                f"fused elementwise call: operands {shapes} give results of different shapes",
                hint="Load with passes=() to run each op alone.",
            )
        tensor.dims = dims
    _run(cx, compiled, tensors, [LiveInt(b, -1) for b in bits], out)


@joined.reference
def evaluate(program: str, tensors: Sequence[Any], numbers: Sequence[float]) -> tuple[Any, ...]:
    """Return the results of a program, computed by the references of its steps."""
    steps, outputs = parse_program(program)
    terms: dict[str, Any] = {f"x{i}": array for i, array in enumerate(tensors)}
    terms |= {f"n{i}": number for i, number in enumerate(numbers)}
    for position, step in enumerate(steps):
        compute = registered()[step.name].compute
        assert compute is not None
        result = np.asarray(compute(*(argument_of(terms, name) for name in step.args)))
        with np.errstate(over="ignore", invalid="ignore"):
            terms[f"v{position}"] = result.astype(_DTYPES[step.dtype].numpy)
    return tuple(terms[name] for name in outputs)
