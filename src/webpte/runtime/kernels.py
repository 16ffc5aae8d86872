"""Kernel calls that run on the CPU: NumPy versions, the references of ops, and torch's own where torch is installed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import Error, GraphError
from ..graph import Bool as BoolLiteral
from ..graph import BoolList, Call, Double, DoubleList, Graph, Int, IntList, Null, Origin, String, TensorSpec, ValueList
from ..ops import Option, find
from .numpy_kernels import KERNELS, Kernel

Array = np.ndarray[Any, Any]


def _numpy_kernel(name: str) -> Kernel | None:
    return KERNELS.get(name) or _reference(name)


def _reference(name: str) -> Kernel | None:
    """An op's NumPy reference. An out-variant calls it without the tensor options; a delegate passes them."""
    kernel = "::" in name
    op = find(Call(name, (), (), Origin(0), kernel))
    if op is None or op.compute is None:
        return None
    compute = op.compute
    options = [i for i, (_, annotation) in enumerate(op.parameters) if kernel and annotation is Option]

    def call(*args: Any) -> Any:
        full = list(args)
        for position in options:
            full.insert(position, None)
        return compute(*full)

    return call


@functools.cache
def _torch_kernel(name: str) -> Any | None:
    try:
        import torch
    except ImportError:
        return None
    # `aten::cumsum.out` outside delegates; inside, with the fallback on, `aten.cumsum.default`.
    namespace, _, rest = name.partition("::" if "::" in name else ".")
    base, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError:
        return None


class CpuKernels:
    """Every kernel call the CPU can serve, by name."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (_numpy_kernel(name) is not None or _torch_kernel(name) is not None)

    def source(self, name: str) -> str:
        """What runs a kernel call on the CPU: "numpy" or "torch"."""
        return "torch" if _numpy_kernel(name) is None else "numpy"

    def run(self, call: Call, graph: Graph, tensors: dict[int, Array], scalars: dict[int, float]) -> dict[int, Array]:
        """Execute a call; returns its outputs by value id, in the dtypes the program declares."""
        args = [_python_value(graph, a, tensors, scalars) for a in call.args]
        kernel = _numpy_kernel(call.name)
        try:
            result = (
                kernel(*args) if kernel is not None else _run_torch(call, args, [graph.tensor(o) for o in call.outs])
            )
        except Error:
            raise
        except Exception as error:
            raise GraphError(
                f"{call.name} ({call.origin}) failed on the CPU: {type(error).__name__}: {error}"
            ) from error
        results = result if isinstance(result, tuple) else (result,)
        out: dict[int, Array] = {}
        for value_id, array in zip(call.outs, results, strict=True):
            spec = graph.tensor(value_id)
            out[value_id] = np.ascontiguousarray(array, dtype=spec.host_dtype.numpy).reshape(np.shape(array))
        return out


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


def _run_torch(call: Call, args: Sequence[Any], outs: Sequence[TensorSpec]) -> Any:
    import torch

    kernel = _torch_kernel(call.name)
    assert kernel is not None
    schema = kernel._schema.arguments
    converted = [torch.from_numpy(np.array(a)) if isinstance(a, np.ndarray) else a for a in args]
    named = {a.name: v for a, v in zip(schema, converted, strict=False) if a.kwarg_only}
    positional = [v for a, v in zip(schema, converted, strict=False) if not a.kwarg_only]
    # An out tensor without elements is resized without a warning; torch must own its memory to do so.
    dtypes = [torch.from_numpy(np.empty(0, spec.host_dtype.numpy)).dtype for spec in outs]
    empty = iter(torch.empty(0, dtype=dtype) for dtype in dtypes)
    named |= {a.name: next(empty) for a in schema[len(converted) :] if a.is_out}
    result = kernel(*positional, **named)
    return tuple(r.numpy() for r in result) if isinstance(result, (tuple, list)) else result.numpy()
