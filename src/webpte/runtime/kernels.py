"""Kernel calls that run on the CPU: NumPy kernels, the references of ops, and torch's kernels if torch is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import Error, GraphError, RangeError
from ..graph import Bool as BoolLiteral
from ..graph import (
    BoolList,
    Call,
    Double,
    DoubleList,
    DType,
    Graph,
    Int,
    IntList,
    Null,
    Origin,
    String,
    TensorSpec,
    ValueList,
)
from ..graph.expressions import TermEvaluator
from ..lowering import BoundCall, Context, Frame, TensorOption, find
from ..wgsl import Caps
from .numpy_kernels import KERNELS, Kernel
from .torch_kernels import run_torch, torch_kernel

Array = np.ndarray[Any, Any]


def _numpy_kernel(name: str) -> Kernel | None:
    return KERNELS.get(name) or _reference(name)


def _reference(name: str) -> Kernel | None:
    """Return an op's NumPy reference. An out-variant is called without the tensor options; a delegate passes them."""
    kernel = "::" in name
    op = find(Call(name, (), (), Origin(0), kernel))
    if op is None or op.compute is None:
        return None
    compute = op.compute
    options = [i for i, (_, annotation) in enumerate(op.parameters) if kernel and annotation is TensorOption]

    def call(*args: Any) -> Any:
        full = list(args)
        for position in options:
            full.insert(position, None)
        return compute(*full)

    return call


class CpuKernels:
    """The kernel calls that the CPU can run, by name."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (_numpy_kernel(name) is not None or torch_kernel(name) is not None)

    def source(self, name: str) -> str:
        """Return what runs a kernel call on the CPU: "numpy" or "torch"."""
        return "torch" if _numpy_kernel(name) is None else "numpy"

    def run(self, call: Call, graph: Graph, tensors: dict[int, Array], scalars: dict[int, float]) -> dict[int, Array]:
        """Run a call and return its outputs by value id, in the dtypes the program declares."""
        outs = [graph.tensor(o) for o in call.outs]
        kernel = _numpy_kernel(call.name)
        try:
            args = [_python_value(graph, a, tensors, scalars) for a in call.args]
            if kernel is None:
                result = run_torch(call, args, outs)
            else:
                refuse_sizes(call, graph, tensors, scalars)
                result = kernel(*args)
            results = result if isinstance(result, (tuple, list)) else (result,)
            arrays = [spec.host_dtype.rounded(a) for spec, a in zip(outs, results, strict=True)]
        except Error:
            raise
        except Exception as error:
            raise GraphError(
                f"{call.name} ({call.origin}) failed on the CPU: {type(error).__name__}: {error}",
                code="cpu_kernel_failed",
            ) from error
        return dict(zip(call.outs, arrays, strict=True))


def refuse_sizes(call: Call, graph: Graph, tensors: Mapping[int, Array], scalars: Mapping[int, float]) -> None:
    """Compute the shapes of the results with the op's lowering, before NumPy allocates memory for them.

    The arguments come from the file: `full` of 10**12 elements is refused here, as it is on the device.
    """
    op = find(call)
    if op is None or not op.dtypes:  # its result is at most as large as its arguments
        return
    if op.unsupported_if and op.unsupported_if(call, graph):  # the lowering does not support the call
        return
    operands = (*graph.flatten(call.args), *call.outs)
    context = Context(Caps())
    context.numbers = TermEvaluator(tensors, scalars)
    frame = Frame(graph, context, only=operands)
    stand_in = DType.FLOAT32 if DType.FLOAT32 in op.dtypes else min(op.dtypes, key=lambda dtype: dtype.short)
    for value_id, handle in frame.tensors.items():
        if handle.dtype not in op.dtypes:  # the reason why the call runs here; shapes do not depend on it
            handle.dtype = stand_in
        if value_id in tensors:
            handle.dims = tensors[value_id].shape
    for value_id, scalar in frame.scalars.items():
        if value_id in scalars:
            scalar.set(scalars[value_id])
    bound = BoundCall(op, call, frame)
    context.begin(0, op, call)
    with contextlib.suppress(RangeError):  # a number is too large for the device; the shapes are known already
        bound.lower(context)


def _python_value(graph: Graph, value_id: int, tensors: dict[int, Array], scalars: dict[int, float]) -> Any:
    value = graph.values[value_id]
    match value:
        case TensorSpec():
            return tensors[value_id]
        case Null():
            return None
        case Int() | Double() | BoolLiteral() | String():
            return value.value
        case IntList() | DoubleList() | BoolList():
            return list(value.values)
        case ValueList():
            return [_python_value(graph, item, tensors, scalars) for item in value.ids]
    return scalars[value_id]
