"""Inlining one delegate into the method's graph.

A delegate's inputs and outputs become the program's own values wherever that is exact. Where it is not, because the
dtype differs or the delegate writes into its private copy of an input, a copy stands at the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..container import (
    DelegateCall,
    DType,
    EValue,
    KernelCall,
    MethodPlan,
    MoveCall,
    Span,
    TensorListValue,
    TensorValue,
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
from ..errors import DataError, GraphError, Problem
from . import names
from .delegate_io import DelegateIO, match_delegate_io
from .graph import (
    Bool,
    BoolList,
    Call,
    Constant,
    Double,
    DoubleList,
    Int,
    IntList,
    Mutates,
    Null,
    Origin,
    String,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
    device_dtype,
    numel,
)
from .mutable_buffers import ALIASED, DelegateConstants, MutableBuffer, flat
from .names import COPY, ITEM, PREPACK, UPDATE

Named = Callable[[str, str, int], Span]


def refuse_own(name: str, origin: Origin) -> None:
    """Raise GraphError if a file calls an op of webpte's own, whose preconditions only passes can ensure."""
    if name.startswith(names.OWN) and name != names.EXPERTS:
        raise GraphError(f"{name} ({origin}) is an internal op of webpte, which a file must not call")


@dataclass(frozen=True, slots=True)
class Inlined:
    """A delegate's graph for one instruction that calls it."""

    vk: VkGraph
    origin: Origin
    calls: tuple[Call, ...]  # with the delegate's ids
    border: DelegateIO
    buffers: DelegateConstants
    aliased: bool  # the exporter was asked to separate buffers from constants


def read_delegates(
    plan: MethodPlan, parsed: Mapping[int, VkGraph], mutates: Mutates
) -> tuple[dict[int, Inlined], list[Problem]]:
    """Return the readable calls of delegates by instruction, and the problems of the others."""
    inlined: dict[int, Inlined] = {}
    problems: list[Problem] = []
    written = {*plan.inputs, *(index for index, value in enumerate(plan.values) if _exists(value)), *_targets(plan)}
    for index, instruction in enumerate(plan.instructions):
        if not isinstance(instruction, DelegateCall):
            continue
        origin = Origin(index, instruction.delegate)
        vk = parsed.get(instruction.delegate)
        if vk is None:
            written.update(instruction.args)
            continue
        calls = _calls(vk, origin)
        buffers = DelegateConstants(vk, calls, mutates)
        border = match_delegate_io(plan.values, written, vk, instruction.args, origin, buffers)
        if isinstance(border, Problem):
            problems.append(border)
        else:
            aliased = any(plan.delegates[instruction.delegate].compile_specs.get(ALIASED, b""))
            inlined[index] = Inlined(vk, origin, calls, border, buffers, aliased)
        written.update(instruction.args)
    return inlined, problems


def _exists(value: EValue) -> bool:
    return isinstance(value, TensorValue) and (
        value.data is not None or value.external_name is not None or value.mutable
    )


def _targets(plan: MethodPlan) -> Iterator[int]:
    """Return the values that kernel calls and moves write. A buffer may be read before it is written."""
    for instruction in plan.instructions:
        if isinstance(instruction, KernelCall):
            for target in instruction.args[-1:]:
                value = plan.values[target]
                yield from value.ids if isinstance(value, TensorListValue) else (target,)
        elif isinstance(instruction, MoveCall):
            yield instruction.target


def _calls(vk: VkGraph, origin: Origin) -> tuple[Call, ...]:
    calls = [Call(c.name, c.args[:-1], c.args[-1:], replace(origin, node=c.node_id)) for c in vk.calls if c.args]
    if len(calls) != len(vk.calls):
        raise GraphError(f"delegate {origin.delegate} has a call without arguments")
    for call in calls:
        refuse_own(call.name, call.origin)
    return tuple(calls)


def inline(values: list[Value], delegate: Inlined, named: Named, mutates: Mutates) -> tuple[list[Call], Problem | None]:
    """Append the delegate's private values to `values`; return its calls with the graph's ids, and what is wrong."""
    inliner = _Inliner(values, delegate, named)
    inliner.written = set(flat(delegate.vk, (c.args[position] for c in delegate.calls for position in mutates(c))))
    kept = delegate.buffers.kept(delegate.border.untaken, delegate.origin, inliner.constant)
    if isinstance(kept, Problem):
        return inliner.run(()), kept
    taken = [vk_id for vk_id, _ in delegate.border.outputs]
    doubt = None if delegate.aliased else delegate.buffers.doubt(taken, kept, delegate.origin, inliner.constant)
    return inliner.run(kept), doubt


class _Inliner:
    written: set[int]

    def __init__(self, values: list[Value], delegate: Inlined, named: Named) -> None:
        self.values = values
        self.delegate = delegate
        self.vk = delegate.vk
        self.origin = delegate.origin
        self.named = named
        self.ids: dict[int, int] = {}  # delegate id -> graph id
        self.homes: set[int] = set()  # delegate's ids of buffers that calls write
        self._constants: dict[int, Constant] = {}
        self.before: list[Call] = []
        self.late: list[tuple[int, int]] = []  # (delegate id, program id) copied after the last call

    def run(self, kept: Sequence[MutableBuffer]) -> list[Call]:
        for vk_id, program_id in self.delegate.border.inputs:
            self._bind_input(vk_id, program_id)
        for buffer in kept:
            self._bind_buffer(buffer)
        for vk_id, program_id in self.delegate.border.outputs:
            self._bind_output(vk_id, program_id)
        private = [vk_id for vk_id in range(len(self.vk.values)) if vk_id not in self.ids]
        for vk_id in private:  # number all of them first: a list may name a value that comes later
            self.ids[vk_id] = self._new(Null())
        for vk_id in private:
            self.values[self.ids[vk_id]] = self._convert(vk_id)
        inner = [mapped for call in self.delegate.calls for mapped in self._mapped(call)]
        after = [Call(COPY, (self.ids[vk_id],), (program_id,), self.origin) for vk_id, program_id in self.late]
        return self.before + inner + after + self._updates(kept)

    def _bind_buffer(self, buffer: MutableBuffer) -> None:
        """Map all ids of a buffer to one value, which exists before the method runs and outlives it."""
        constant = self.vk.values[buffer.homes[0]]
        assert isinstance(constant, VkTensor)
        self.homes.update(buffer.homes)
        state = self._new(replace(self._tensor(buffer.homes[0], constant), mutable=True))
        self.ids.update(dict.fromkeys(buffer.homes, state))

    def _updates(self, kept: Sequence[MutableBuffer]) -> list[Call]:
        """Append calls that update buffers. A new value that is another's old value is copied before any update."""
        aside, updates = [], []
        for buffer in kept:
            if buffer.new is None:
                continue
            new = self.ids[buffer.new]
            if buffer.new in self.homes:
                old, new = new, self._new(replace(self._spec(new), constant=None, mutable=False))
                aside.append(Call(COPY, (old,), (new,), self.origin))
            updates.append(self._update(self.ids[buffer.homes[0]], new, self.origin))
        return aside + updates

    def _update(self, state: int, new: int, origin: Origin) -> Call:
        return Call(UPDATE, (state, new, self._new(Bool(False))), (state,), origin, kernel=True)

    def _spec(self, graph_id: int) -> TensorSpec:
        spec = self.values[graph_id]
        assert isinstance(spec, TensorSpec)
        return spec

    def _new(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _mapped(self, call: Call) -> list[Call]:
        """Return the call with the graph's ids. New values of buffers get their own ids: the call may read both."""
        out = self.vk.values[call.outs[0]]
        results = out.ids if isinstance(out, VkValueList) else call.outs
        if call.name == PREPACK and len(call.args) == 1 and {*results, *call.args} <= self.homes:
            return []  # two ids of one buffer
        outs = [self.ids[vk_id] for vk_id in results]
        updates = []
        for position, vk_id in enumerate(results):
            if vk_id in self.homes:
                state = outs[position]
                outs[position] = self._new(replace(self._spec(state), constant=None, mutable=False))
                updates.append(self._update(state, outs[position], call.origin))
        return [replace(call, args=tuple(self.ids[a] for a in call.args), outs=tuple(outs)), *updates]

    def _bind_input(self, vk_id: int, program_id: int) -> None:
        inner, outer = self.vk.values[vk_id], self.values[program_id]
        if isinstance(outer, TensorSpec) and isinstance(inner, VkSymInt):
            self.ids[vk_id] = self._new(SymInt())
            self.before.append(Call(ITEM, (program_id,), (self.ids[vk_id],), self.origin, kernel=True))
        elif isinstance(outer, TensorSpec) and (self._dtype(vk_id) != outer.dtype or vk_id in self.written):
            self.ids[vk_id] = self._new(self._convert(vk_id))
            self.before.append(Call(COPY, (program_id,), (self.ids[vk_id],), self.origin))
        else:
            self.ids[vk_id] = program_id

    def _bind_output(self, vk_id: int, program_id: int) -> None:
        inner, outer = self.vk.values[vk_id], self.values[program_id]
        if isinstance(outer, TensorSpec) and isinstance(inner, VkTensor):
            same = self._dtype(vk_id) == outer.dtype and inner.constant_id < 0
        else:
            same = isinstance(outer, SymInt)
        if same and vk_id not in self.ids:
            self.ids[vk_id] = program_id
        else:  # an input handed through, a second name for one output, a constant, a buffer, or another dtype
            self.late.append((vk_id, program_id))

    def _dtype(self, vk_id: int) -> DType:
        tensor = self.vk.values[vk_id]
        assert isinstance(tensor, VkTensor)
        return device_dtype(tensor.dtype)

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
            constant = self.constant(vk_id)
        dtype = device_dtype(tensor.dtype)
        return TensorSpec(dtype, tensor.dims, dtype, constant=constant)

    def constant(self, vk_id: int) -> Constant:
        """Return the data of a constant. It is looked up once, and missing data is reported there."""
        if vk_id not in self._constants:
            self._constants[vk_id] = self._find_constant(vk_id)
        return self._constants[vk_id]

    def _find_constant(self, vk_id: int) -> Constant:
        tensor = self.vk.values[vk_id]
        assert isinstance(tensor, VkTensor)
        entry = self.vk.constants[tensor.constant_id]
        where = f"delegate {self.origin.delegate}, value {vk_id} {tensor.dtype.short}{list(tensor.dims)}"
        name = entry.key or f"inline constant {tensor.constant_id}"
        dtype = tensor.dtype
        needed = numel(tensor.dims) * dtype.itemsize
        if dtype is DType.INT32 and entry.length == 2 * needed > 0:  # ExecuTorch 0.7 declares int64 so, and stores it
            dtype, needed = DType.INT64, 2 * needed
        span = entry.span if entry.key is None else self.named(entry.key, where, needed)
        if span is None or span.size < needed or entry.length != needed:
            held = min(span.size if span is not None else 0, entry.length)
            raise DataError(
                f"{where}: constant {tensor.constant_id} ({name}) has {held} bytes; the shape needs {needed}"
            )
        return Constant(span.sub(0, needed), dtype, name)
