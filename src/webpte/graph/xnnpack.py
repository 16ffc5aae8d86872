"""Inlining one XNNPACK delegate into the method's graph.

Its nodes become calls of the ops that Vulkan delegates call too. Inputs and outputs become the program's own values;
a copy is made only where the order of dims or the dtype differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..container import DType, EValue, TensorValue, XnnGraph, XnnNode, XnnType, XnnValue
from ..errors import GraphError, Problem
from .graph import Call, Origin, TensorSpec, Value
from .names import COPY
from .xnnpack_codes import scale_of
from .xnnpack_quantized import translate
from .xnnpack_values import DTYPES, TYPE_REMEDIES, LaidOut, Named, Order, UnsupportedNodeError, XnnValues, identity

XNN_BACKEND = "XnnpackBackend"
_BORDER_DTYPES = {
    XnnType.FP32: (DType.FLOAT32,),
    XnnType.FP16: (DType.FLOAT16,),
    XnnType.BF16: (DType.BFLOAT16,),
    XnnType.QINT8: (DType.INT8,),
    XnnType.INT32: (DType.INT32, DType.INT64),
}
_RESULTS = ("output", "output_index")
REMEDY = (
    "Export with VulkanPartitioner instead, or with XnnpackPartitioner(configs=...) without the config of this op "
    "(ALL_PARTITIONER_CONFIGS of executorch.backends.xnnpack.partition.config lists them)."
)


@dataclass(frozen=True, slots=True)
class XnnArgument:
    """An input or output: the delegate's value, the program's value, and the order of the program's dims in memory."""

    inner: int
    outer: int
    order: Order


@dataclass(frozen=True, slots=True)
class XnnDelegate:
    """A delegate's graph for one instruction that calls it."""

    xnn: XnnGraph
    origin: Origin
    inputs: tuple[XnnArgument, ...]
    outputs: tuple[XnnArgument, ...]


def match_xnnpack_io(program: Sequence[EValue], xnn: XnnGraph, arguments: Sequence[int], origin: Origin) -> XnnDelegate:
    """Return the delegate with the program's values that its external values are."""
    inputs: list[XnnArgument] = []
    outputs: list[XnnArgument] = []
    seen: set[int] = set()
    for number, value in enumerate(xnn.values):
        if value.argument is None:
            continue
        if value.argument >= len(arguments) or value.argument in seen:
            raise GraphError(
                f"delegate {origin.delegate}: value {number} is argument {value.argument} of {len(arguments)}",
                code="wrong_arity",
            )
        seen.add(value.argument)
        outer = arguments[value.argument]
        matched = XnnArgument(number, outer, _border_order(program[outer], value, number, outer, origin))
        (inputs if value.is_input else outputs).append(matched)
    return XnnDelegate(xnn, origin, tuple(inputs), tuple(outputs))


def _border_order(outer: EValue, inner: XnnValue, number: int, outer_id: int, origin: Origin) -> Order:
    if inner.type is XnnType.QINT8:
        scale_of(inner)  # must exist
    if isinstance(outer, TensorValue) and outer.dtype in _BORDER_DTYPES.get(inner.type, ()):
        if tuple(outer.sizes[d] for d in outer.dim_order) == inner.dims:
            return outer.dim_order
        if not outer.sizes and inner.dims == (1,):
            return ()
    shown = f"{inner.type.name.lower()}{list(inner.dims)}"
    theirs = f"{outer.dtype.short}{list(outer.sizes)}" if isinstance(outer, TensorValue) else type(outer).__name__
    raise GraphError(
        f"delegate {origin.delegate}: value {number} is {shown}, the program's value {outer_id} is {theirs}",
        hint=TYPE_REMEDIES.get(inner.type, ""),
        code="border",
    )


def inline_xnnpack(values: list[Value], delegate: XnnDelegate, named: Named) -> tuple[list[Call], list[Problem]]:
    """Append the delegate's values to `values`; return its calls, and the nodes that have no translation."""
    xv = XnnValues(values, delegate.xnn, delegate.origin, named)
    for argument in delegate.inputs:
        xv.layouts[argument.inner] = LaidOut(_entered(xv, argument.outer), argument.order)
    refused: dict[tuple[str, str, str], list[str]] = {}  # (type, reason, remedy) -> the nodes
    for number, node in enumerate(delegate.xnn.nodes):
        xv.origin = replace(delegate.origin, node=number)
        try:
            translate(xv, node)
        except UnsupportedNodeError as error:
            _leave_out(xv, node)
            refused.setdefault((node.type, str(error), error.remedy or REMEDY), []).append(str(xv.origin))
    xv.origin = replace(delegate.origin, node=len(delegate.xnn.nodes))
    problems = [
        Problem("backend", f"XNNPACK {kind}", reason, tuple(nodes), remedy, "unsupported_node")
        for (kind, reason, remedy), nodes in refused.items()
    ]
    return _bind_outputs(xv, delegate), problems


def _entered(xv: XnnValues, outer: int) -> int:
    """Return an input as a tensor of the device."""
    spec = xv.tensor(outer)
    if spec.dtype is not DType.BFLOAT16:
        return outer
    entered = xv.new(TensorSpec(DType.FLOAT32, spec.dims, DType.FLOAT32))
    xv.convert_outside(outer, entered)
    return entered


def _leave_out(xv: XnnValues, node: XnnNode) -> None:
    """Define the results of a node that has no translation, so that the nodes after it can be checked."""
    for result in (node.ids[name] for name in _RESULTS if name in node.ids):
        if result not in xv.layouts and not xv.is_constant(result):
            value = xv.value(result)
            dtype = DTYPES.get(value.type, DType.FLOAT32)
            xv.layouts[result] = LaidOut(xv.new(TensorSpec(dtype, value.dims, dtype)), identity(len(value.dims)))


def _bind_outputs(xv: XnnValues, delegate: XnnDelegate) -> list[Call]:
    """Return the calls, with results that are outputs written to the program's values."""
    read = {argument.outer for argument in delegate.inputs}
    renamed: dict[int, int] = {}
    for argument in delegate.outputs:
        outer = xv.tensor(argument.outer)
        tensor = xv.laid(argument.inner, argument.order) if outer.dims else xv.plain(argument.inner)
        if not outer.dims:
            tensor = xv.viewed(tensor, (), ())
        made_here = any(tensor in call.outs for call in xv.calls)
        same = (xv.tensor(tensor).dtype, xv.tensor(tensor).dims) == (outer.dtype, outer.dims)
        if made_here and same and tensor not in renamed and argument.outer not in read and not outer.stored:
            renamed[tensor] = argument.outer
        elif outer.dtype is DType.BFLOAT16:
            xv.convert_outside(tensor, argument.outer)
        else:
            xv.call_into(COPY, (tensor,), (argument.outer,))
    return [
        replace(
            call,
            args=tuple(renamed.get(value_id, value_id) for value_id in call.args),
            outs=tuple(renamed.get(value_id, value_id) for value_id in call.outs),
        )
        for call in xv.calls
    ]
