"""Decoding a call's arguments by the annotations of its op.

Scalars are coerced both ways: the exporter deduplicates by Python equality, so an int slot may hold a Double and the
other way round. Constants are decoded once; values with live scalars are decoded at every lowering. Arguments
of a group (lowering.registry) are decoded each by its own annotation, and become one value.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import GraphError
from ..graph import (
    LIVE_SCALARS,
    Bool,
    BoolList,
    Call,
    Double,
    DoubleList,
    Graph,
    Int,
    IntList,
    Null,
    String,
    TensorSpec,
    ValueList,
)
from ..graph.expressions import Element
from .context import Context, LiveScalar, MethodContext, Tensor
from .registry import Op, TensorOption, Unused

Thunk = Callable[[], Any]


class Frame:
    """The live handles of one method: one Tensor or LiveScalar per value id, or per id in `only`."""

    def __init__(self, graph: Graph, method: MethodContext, only: Iterable[int] | None = None) -> None:
        self.graph = graph
        self.method = method
        self.tensors: dict[int, Tensor] = {}
        self.scalars: dict[int, LiveScalar] = {}
        for value_id in range(len(graph.values)) if only is None else only:
            value = graph.values[value_id]
            if isinstance(value, TensorSpec):
                self.tensors[value_id] = Tensor(value_id, value)
                method.measure(self.tensors[value_id])
            elif isinstance(value, LIVE_SCALARS):
                self.scalars[value_id] = LiveScalar(method, value_id)


class BoundCall:
    """A call whose arguments are decoded, which can be lowered repeatedly."""

    __slots__ = ("_live", "_static", "call", "op", "out")

    def __init__(self, op: Op, call: Call, frame: Frame) -> None:
        self.op = op
        self.call = call
        self._static: dict[str, Any] = {name: op.defaults.get(name) for name, _ in op.parameters}
        self._live: list[tuple[str, Thunk]] = []
        for (name, annotation), value_id in zip(op.bound_parameters(call), call.args, strict=True):
            decoded = _decode(frame, value_id, annotation, f"{call.name} ({call.origin}), argument {name}")
            if isinstance(decoded, _Live):
                self._live.append((name, decoded.thunk))
            else:
                self._static[name] = decoded
        self.out = self._outputs(frame)

    def _outputs(self, frame: Frame) -> Any:
        handles = [frame.tensors.get(o) or frame.scalars.get(o) for o in self.call.outs]
        if None in handles:
            bad = self.call.outs[handles.index(None)]
            kind = type(frame.graph.values[bad]).__name__
            raise GraphError(
                f"{self.call.name} ({self.call.origin}): output value {bad}: expected a tensor or a SymInt, got {kind}",
                code="wrong_kind",
            )
        origin = typing.get_origin(self.op.out_type)
        if origin in (tuple, list):
            expected = len(typing.get_args(self.op.out_type))
            if origin is tuple and len(handles) != expected:
                raise GraphError(
                    f"{self.call.name} ({self.call.origin}): expected {expected} outputs in one "
                    f"ValueList, got {len(handles)}",
                    code="wrong_arity",
                )
            return handles
        if len(handles) != 1:
            raise GraphError(
                f"{self.call.name} ({self.call.origin}): expected 1 output, got {len(handles)}", code="wrong_arity"
            )
        return handles[0]

    def lower(self, context: Context) -> None:
        arguments = self._static
        if self._live:
            arguments = dict(arguments)
            for name, thunk in self._live:
                arguments[name] = thunk()
        self.op.lower(context, *self.op.gathered(tuple(arguments.values())), out=self.out)


class _Live:
    """Marks an argument that has to be decoded at every lowering."""

    __slots__ = ("thunk",)

    def __init__(self, thunk: Thunk) -> None:
        self.thunk = thunk


def _members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return typing.get_args(annotation)
    return (annotation,)


def _decode(frame: Frame, value_id: int, annotation: Any, where: str) -> Any:
    if annotation is TensorOption or annotation is Unused:
        return None
    members = _members(annotation)
    value = frame.graph.values[value_id]
    if isinstance(value, Null):
        if types.NoneType in members:
            return None
        raise GraphError(f"{where}: value {value_id}: the op does not accept Null", code="wrong_kind")
    if isinstance(value, TensorSpec) and Tensor in members:
        return frame.tensors[value_id]
    for member in members:
        if typing.get_origin(member) is list:
            return _decode_list(frame, value_id, typing.get_args(member)[0], where)
    if LiveScalar in members:
        return _live_scalar(frame, value_id, where)
    return _scalar(frame, value_id, members, where)


def _live_scalar(frame: Frame, value_id: int, where: str) -> LiveScalar:
    handle = frame.scalars.get(value_id)
    if handle is not None:
        return handle
    value = frame.graph.values[value_id]
    if isinstance(value, (Int, Double, Bool)):
        return LiveScalar(frame.method, value_id, value.value)
    raise GraphError(
        f"{where}: value {value_id}: expected a SymInt or a number, got {type(value).__name__}", code="wrong_kind"
    )


def _scalar(frame: Frame, value_id: int, members: Sequence[Any], where: str) -> Any:
    value = frame.graph.values[value_id]
    if isinstance(value, String) and str in members:
        return value.value
    if isinstance(value, (Int, Double, Bool)):
        return _coerce(value.value, members, value_id, where)
    handle = frame.scalars.get(value_id)
    if handle is not None and Element in members:  # the op takes terms, and specializes on them itself
        return _Live(lambda: handle.term)
    if handle is not None:
        return _Live(lambda: _coerce(handle.value, members, value_id, where))
    names = " or ".join(getattr(m, "__name__", str(m)) for m in members)
    raise GraphError(f"{where}: value {value_id}: expected {names}, got {type(value).__name__}", code="wrong_kind")


def _coerce(value: Any, members: Sequence[Any], value_id: int, where: str) -> Any:
    if int in members and float in members:
        return value  # a Scalar keeps its kind: add(x, 1) and add(x, 1.0) differ for integers
    if bool in members:
        return bool(value)
    if float in members:
        return float(value)
    if int in members and math.isfinite(value) and int(value) == value:
        return int(value)
    raise GraphError(f"{where}: value {value_id}: expected an integer, got {value!r}", code="wrong_kind")


def _decode_list(frame: Frame, value_id: int, member: Any, where: str) -> Any:
    value = frame.graph.values[value_id]
    members = _members(member)
    if isinstance(value, (IntList, DoubleList, BoolList)):
        return [_coerce(item, members, value_id, where) for item in value.values]
    if isinstance(value, (Int, Double)):  # a one-element size may be a number
        return [_coerce(value.value, members, value_id, where)]
    if not isinstance(value, ValueList):
        raise GraphError(f"{where}: value {value_id}: expected a list, got {type(value).__name__}", code="wrong_kind")
    items = [_decode(frame, item, member, where) for item in value.ids]
    if any(isinstance(item, _Live) for item in items):
        return _Live(lambda: [item.thunk() if isinstance(item, _Live) else item for item in items])
    return items
