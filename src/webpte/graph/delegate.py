"""Inlining one delegate into the method's graph.

A delegate's inputs and outputs become the program's own values wherever that is exact. Where it is not, because the
dtype differs or the delegate writes into its private copy of an input, a copy stands at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..container import (
    Span,
    VkBool,
    VkBoolList,
    VkDouble,
    VkDoubleList,
    VkGraph,
    VkInt,
    VkIntList,
    VkNull,
    VkString,
    VkSymInt,
    VkTensor,
    VkValueList,
)
from ..errors import DataError, GraphError
from .graph import Call, Mutates, Origin
from .values import (
    Bool,
    BoolList,
    Constant,
    Double,
    DoubleList,
    Int,
    IntList,
    Null,
    String,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
    device_dtype,
    numel,
)

COPY = "webpte.copy"  # out becomes self, converted to out's dtype; serves moves, private copies and casts
OWN = "webpte."  # what passes and borders put there; no file may call it
ITEM = "aten::_local_scalar_dense"
Named = Callable[[str, str, int], Span]


def refuse_own(name: str, origin: Origin) -> None:
    """Calls of ops that are ours alone: what they rely on, passes have proved and no file can promise."""
    if name.startswith(OWN):
        raise GraphError(f"{name} ({origin}) is an op of webpte's own, which no file may call")


def inline(
    values: list[Value], vk: VkGraph, args: Sequence[int], origin: Origin, named: Named, mutates: Mutates
) -> list[Call]:
    """Append the delegate's private values to `values`; return its calls with the graph's ids."""
    calls = [Call(c.name, c.args[:-1], c.args[-1:], replace(origin, node=c.node_id)) for c in vk.calls if c.args]
    if len(calls) != len(vk.calls):
        raise GraphError(f"delegate {origin.delegate} has a call without arguments")
    for call in calls:
        refuse_own(call.name, call.origin)
    inliner = _Inliner(values, vk, origin, named)
    inliner.written = {c.args[position] for c in calls for position in mutates(c)}
    # What a delegate has written to its own state comes first among its outputs, and the program does not take it.
    untaken = len(vk.inputs) + len(vk.outputs) - len(args)
    if untaken and not (inliner.written and 0 < untaken <= len(vk.outputs)):
        raise GraphError(
            f"delegate {origin.delegate} takes {len(vk.inputs)} inputs and {len(vk.outputs)} outputs; "
            f"instruction {origin.instruction} passes {len(args)} values"
        )
    return inliner.run(calls, args, vk.outputs[untaken:])


class _Inliner:
    written: set[int]

    def __init__(self, values: list[Value], vk: VkGraph, origin: Origin, named: Named) -> None:
        self.values = values
        self.vk = vk
        self.origin = origin
        self.named = named
        self.ids: dict[int, int] = {}  # delegate id -> graph id
        self.before: list[Call] = []
        self.late: list[tuple[int, int]] = []  # (delegate id, program id) copied after the last call

    def run(self, calls: list[Call], args: Sequence[int], outputs: Sequence[int]) -> list[Call]:
        border = len(self.vk.inputs)
        for vk_id, program_id in zip(self.vk.inputs, args[:border], strict=True):
            self._bind_input(vk_id, program_id)
        for vk_id, program_id in zip(outputs, args[border:], strict=True):
            self._bind_output(vk_id, program_id)
        private = [vk_id for vk_id in range(len(self.vk.values)) if vk_id not in self.ids]
        for vk_id in private:  # number all of them first: a list may name a value that comes later
            self.ids[vk_id] = self._new(Null())
        for vk_id in private:
            self.values[self.ids[vk_id]] = self._convert(vk_id)
        inner = [self._mapped(call) for call in calls]
        after = [Call(COPY, (self.ids[vk_id],), (program_id,), self.origin) for vk_id, program_id in self.late]
        return self.before + inner + after

    def _new(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _mapped(self, call: Call) -> Call:
        out = self.vk.values[call.outs[0]]
        outs = out.ids if isinstance(out, VkValueList) else call.outs
        return replace(call, args=tuple(self.ids[a] for a in call.args), outs=tuple(self.ids[o] for o in outs))

    def _bind_input(self, vk_id: int, program_id: int) -> None:
        wanted, given = self.vk.values[vk_id], self.values[program_id]
        if isinstance(wanted, VkSymInt) and isinstance(given, (SymInt, Int)):
            self.ids[vk_id] = program_id
        elif isinstance(wanted, VkSymInt) and isinstance(given, TensorSpec) and numel(given.dims) == 1:
            self.ids[vk_id] = self._new(SymInt())
            self.before.append(Call(ITEM, (program_id,), (self.ids[vk_id],), self.origin, kernel=True))
        elif isinstance(wanted, VkTensor) and isinstance(given, TensorSpec):
            self._check_rank(vk_id, wanted, program_id, given)
            if device_dtype(wanted.dtype) == given.dtype and vk_id not in self.written:
                self.ids[vk_id] = program_id
            else:
                self.ids[vk_id] = self._new(self._convert(vk_id))
                self.before.append(Call(COPY, (program_id,), (self.ids[vk_id],), self.origin))
        else:
            raise self._mismatch(vk_id, program_id)

    def _bind_output(self, vk_id: int, program_id: int) -> None:
        made, wanted = self.vk.values[vk_id], self.values[program_id]
        if isinstance(made, VkSymInt) and isinstance(wanted, (SymInt, TensorSpec)):
            same = isinstance(wanted, SymInt)
        elif isinstance(made, VkTensor) and isinstance(wanted, TensorSpec):
            self._check_rank(vk_id, made, program_id, wanted)
            same = device_dtype(made.dtype) == wanted.dtype and made.constant_id < 0
        else:
            raise self._mismatch(vk_id, program_id)
        if same and vk_id not in self.ids:
            self.ids[vk_id] = program_id
        else:  # an input handed through, a second name for one output, a constant, or another dtype
            self.late.append((vk_id, program_id))

    def _check_rank(self, vk_id: int, inner: VkTensor, program_id: int, outer: TensorSpec) -> None:
        if len(inner.dims) != len(outer.dims):
            raise GraphError(
                f"delegate {self.origin.delegate}: value {vk_id} has {len(inner.dims)} dims {list(inner.dims)}, "
                f"the program's value {program_id} has {len(outer.dims)}: {list(outer.dims)}"
            )

    def _mismatch(self, vk_id: int, program_id: int) -> GraphError:
        return GraphError(
            f"delegate {self.origin.delegate}: value {vk_id} is a {type(self.vk.values[vk_id]).__name__}, "
            f"the program's value {program_id} a {type(self.values[program_id]).__name__}"
        )

    def _convert(self, vk_id: int) -> Value:
        match self.vk.values[vk_id]:
            case VkTensor() as tensor:
                return self._tensor(vk_id, tensor)
            case VkSymInt():
                return SymInt()
            case VkInt(value):
                return Int(value)
            case VkDouble(value):
                return Double(value)
            case VkBool(value):
                return Bool(value)
            case VkString(value):
                return String(value)
            case VkNull():
                return Null()
            case VkIntList(values):
                return IntList(values)
            case VkDoubleList(values):
                return DoubleList(values)
            case VkBoolList(values):
                return BoolList(values)
            case VkValueList(ids):
                return ValueList(tuple(self.ids[i] for i in ids))
        raise GraphError(f"delegate {self.origin.delegate}: value {vk_id} has an unknown kind")

    def _tensor(self, vk_id: int, tensor: VkTensor) -> TensorSpec:
        constant = None
        if tensor.constant_id >= 0:
            constant = self._constant(vk_id, tensor)
        dtype = device_dtype(tensor.dtype)
        return TensorSpec(dtype, tensor.dims, dtype, constant=constant)

    def _constant(self, vk_id: int, tensor: VkTensor) -> Constant:
        entry = self.vk.constants[tensor.constant_id]
        where = f"delegate {self.origin.delegate}, value {vk_id} {tensor.dtype.short}{list(tensor.dims)}"
        name = entry.key or f"inline constant {tensor.constant_id}"
        needed = numel(tensor.dims) * tensor.dtype.itemsize
        span = entry.span if entry.key is None else self.named(entry.key, where, needed)
        if span is None or span.size < needed or entry.length != needed:
            held = min(span.size if span is not None else 0, entry.length)
            raise DataError(
                f"{where}: constant {tensor.constant_id} ({name}) has {held} bytes; the shape needs {needed}"
            )
        return Constant(span.sub(0, needed), tensor.dtype, name)
