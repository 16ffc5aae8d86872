"""Record the calls of a method, and write them as ExecuTorch's exporter does: delegates, and kernel calls between them.

Calls are recorded in the order in which they run. Consecutive calls of delegate ops become one Vulkan delegate; tensors
and integers that a later part uses are its outputs. A constant of a delegate is named data under its own name, one of
kernel calls is data of the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeGuard

from ..container import (
    BoolValue,
    Delegate,
    DelegateCall,
    DoubleValue,
    DType,
    EValue,
    Instruction,
    IntValue,
    KernelCall,
    MethodPlan,
    NullValue,
    OptionalTensorListValue,
    Span,
    TensorValue,
    VkBool,
    VkCall,
    VkConstant,
    VkDouble,
    VkGraph,
    VkInt,
    VkIntList,
    VkNull,
    VkString,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
    vulkan_blob,
)

MEMORY_POOL = 1  # of all tensors that the program plans; 0 is reserved
PLACE_ALIGNMENT = 16
PREPACK = "et_vk.prepack.default"
_IN_DELEGATE = {DType.INT64: DType.INT32, DType.FLOAT64: DType.FLOAT32}  # delegates have numbers of 32 bits


@dataclass(eq=False, slots=True)
class TracedInt:
    """An integer that a run computes, such as the number of tokens."""

    bound: int


Dim = int | TracedInt


@dataclass(eq=False, slots=True)
class TracedTensor:
    """A tensor of a method: an input, a constant, a state that calls change, or the output of a call."""

    dtype: DType
    dims: tuple[Dim, ...]
    name: str = ""  # of an input or a constant
    data: Span | None = None  # of a constant, or the initial value of a state in a delegate
    state: bool = False

    @property
    def bounds(self) -> tuple[int, ...]:
        return tuple(bound(dim) for dim in self.dims)

    @property
    def dynamic(self) -> bool:
        return any(isinstance(dim, TracedInt) for dim in self.dims)

    @property
    def nbytes(self) -> int:
        return math.prod(self.bounds) * self.dtype.itemsize


def bound(dim: Dim) -> int:
    """Return the largest value of a dimension."""
    return dim if isinstance(dim, int) else dim.bound


Traced = TracedTensor | TracedInt


def is_traced(value: object) -> TypeGuard[Traced]:
    return isinstance(value, TracedTensor | TracedInt)


@dataclass(slots=True)
class _Step:
    op: str
    args: tuple[Any, ...]
    out: Traced | tuple[TracedTensor, ...]
    kernel: bool

    @property
    def outs(self) -> tuple[Traced, ...]:
        return self.out if isinstance(self.out, tuple) else (self.out,)

    @property
    def reads(self) -> list[Traced]:
        return [value for arg in self.args for value in (arg if isinstance(arg, tuple) else (arg,)) if is_traced(value)]


@dataclass
class MethodTrace:
    """The calls of a method so far."""

    inputs: list[TracedTensor] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    _packed: dict[str, TracedTensor] = field(default_factory=dict)  # by the constant's name, in the current delegate

    def input(self, name: str, dtype: DType, dims: Sequence[Dim]) -> TracedTensor:
        self.inputs.append(TracedTensor(dtype, tuple(dims), name))
        return self.inputs[-1]

    def call(self, op: str, *args: Any, dims: Sequence[Dim], dtype: DType = DType.FLOAT32) -> TracedTensor:
        """Record the call of a delegate op and return its output. `args` are all arguments of its schema."""
        return self.call_into(TracedTensor(dtype, tuple(dims)), op, *args)

    def call_into(self, out: TracedTensor, op: str, *args: Any) -> TracedTensor:
        """Record a call that writes a tensor."""
        self.steps.append(_Step(op, args, out, kernel=False))
        return out

    def call_several(
        self, op: str, *args: Any, dims: Sequence[Sequence[Dim]], dtypes: Sequence[DType] | None = None
    ) -> tuple[TracedTensor, ...]:
        """Record a call with several outputs, which are f32 by default."""
        dtypes = [DType.FLOAT32] * len(dims) if dtypes is None else dtypes
        outs = tuple(TracedTensor(dtype, tuple(each)) for dtype, each in zip(dtypes, dims, strict=True))
        self.steps.append(_Step(op, args, outs, kernel=False))
        return outs

    def integer(self, op: str, *args: Any, out: TracedInt) -> TracedInt:
        """Record a call whose output is an integer."""
        self.steps.append(_Step(op, args, out, kernel=False))
        return out

    def kernel(self, op: str, *args: Any, out: TracedTensor) -> TracedTensor:
        """Record a kernel call, such as ``aten::index_put.out``. It ends the current delegate."""
        self.steps.append(_Step(op, args, out, kernel=True))
        self._packed.clear()
        return out

    def packed(self, constant: TracedTensor) -> TracedTensor:
        """Return a constant for ops that do not take constants as they are stored."""
        if constant.name not in self._packed:
            self._packed[constant.name] = self.call(PREPACK, constant, dims=constant.dims, dtype=constant.dtype)
        return self._packed[constant.name]

    def method(self, name: str, outputs: Sequence[TracedTensor], specs: dict[str, bytes]) -> TracedMethod:
        """Return the method. `specs` are the options that delegates were compiled with."""
        return _Assembly(self, outputs, specs).method(name)


@dataclass(frozen=True)
class TracedMethod:
    """A method, and the data that its delegates name."""

    plan: MethodPlan
    named_data: dict[str, Span]


def shared_slots(lifetimes: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return a memory slot for each tensor, given as (bytes, first step, last step), in the order of first steps.

    Tensors share a slot if they do not live at the same time. A free slot is taken if it needs to grow the least.
    """
    slots: list[int] = []
    sizes: list[int] = []
    ends: list[int] = []
    for size, first, last in lifetimes:
        free = [slot for slot, end in enumerate(ends) if end < first]
        best = min(free, key=lambda slot: (max(0, size - sizes[slot]), sizes[slot]), default=None)
        if best is None:
            best = len(sizes)
            sizes.append(0)
            ends.append(0)
        sizes[best], ends[best] = max(sizes[best], size), last
        slots.append(best)
    return slots


class _Assembly:
    """Turns recorded steps into values, delegates and instructions."""

    def __init__(self, trace: MethodTrace, outputs: Sequence[TracedTensor], specs: dict[str, bytes]) -> None:
        self._trace, self._outputs, self._specs = trace, outputs, specs
        self._stages = _stages(trace.steps)
        self._last_stage: dict[Traced, int] = {}  # that reads it
        for number, steps in enumerate(self._stages):
            self._last_stage |= {value: number for step in steps for value in step.reads}
        self._last_stage |= dict.fromkeys(outputs, len(self._stages))
        self._values: list[EValue | TracedTensor] = []  # tensors until their memory is planned
        self._ids: dict[Any, int] = {}
        self._first_stage: dict[TracedTensor, int] = {}  # of tensors outside delegates that are computed
        self._named: dict[str, Span] = {}

    def method(self, name: str) -> TracedMethod:
        inputs = tuple(self._value(value) for value in self._trace.inputs)
        instructions: list[Instruction] = []
        delegates: list[Delegate] = []
        for number, steps in enumerate(self._stages):
            if steps[0].kernel:
                instructions.append(self._kernel_call(number, steps[0]))
                continue
            graph, arguments = self._delegate(number, steps)
            instructions.append(DelegateCall(len(delegates), tuple(map(self._value, arguments))))
            blob = Span.of(f"{name}, delegate {len(delegates)}", vulkan_blob(graph))
            delegates.append(Delegate("VulkanBackend", blob, MappingProxyType(self._specs)))
        outputs = tuple(self._value(value) for value in self._outputs)
        values = self._placed_values()
        return TracedMethod(
            MethodPlan(name, values, inputs, outputs, tuple(instructions), tuple(delegates)), self._named
        )

    # ---------------------------------------------------------------- values of the program

    def _value(self, value: Traced) -> int:
        if value not in self._ids:
            self._ids[value] = len(self._values)
            self._values.append(value if isinstance(value, TracedTensor) else IntValue(0))
        return self._ids[value]

    def _argument(self, arg: Any) -> int:
        """Return the id of an argument of a kernel call."""
        if is_traced(arg):
            return self._value(arg)
        if isinstance(arg, tuple):
            self._values.append(OptionalTensorListValue(tuple(None if a is None else self._value(a) for a in arg)))
        else:
            self._values.append(_constant_value(arg))
        return len(self._values) - 1

    def _kernel_call(self, number: int, step: _Step) -> KernelCall:
        ids = [self._argument(arg) for arg in step.args]
        (out,) = step.outs
        assert isinstance(out, TracedTensor)
        self._first_stage.setdefault(out, number)
        result = self._value(out)
        # An `out` op has its output as an argument too.
        return KernelCall(step.op, (*ids, result, result) if step.op.endswith("out") else (*ids, result))

    def _placed_values(self) -> tuple[EValue, ...]:
        """Return the values, with memory for computed tensors and states."""
        whole = len(self._stages)
        tensors = [value for value in self._values if isinstance(value, TracedTensor)]
        states = [value for value in tensors if value.state]
        computed = sorted(self._first_stage, key=lambda value: self._first_stage[value])
        planned = states + [value for value in computed if not value.state]
        lifetimes = [
            (value.nbytes, 0, whole)
            if value.state
            else (value.nbytes, self._first_stage[value], self._last_stage.get(value, self._first_stage[value]))
            for value in planned
        ]
        places = _places(shared_slots(lifetimes), lifetimes)
        place = dict(zip(planned, places, strict=True))
        return tuple(
            _tensor_value(value, place.get(value)) if isinstance(value, TracedTensor) else value
            for value in self._values
        )

    # ---------------------------------------------------------------- delegates

    def _delegate(self, number: int, steps: Sequence[_Step]) -> tuple[VkGraph, list[Traced]]:
        """Return the graph of a delegate, and its inputs and outputs in the program."""
        written = [out for step in steps for out in step.outs]
        outputs = [
            out
            for out in dict.fromkeys(written)
            if self._last_stage.get(out, number) > number and not (isinstance(out, TracedTensor) and out.state)
        ]
        for out in outputs:
            if isinstance(out, TracedTensor):
                self._first_stage[out] = number
        local = set(written)
        reads = dict.fromkeys(value for step in steps for value in step.reads if value not in local)
        inputs = [value for value in reads if isinstance(value, TracedInt) or value.data is None]
        content = _DelegateGraph(steps, inputs, outputs)
        graph = content.graph()
        self._named |= content.named
        return graph, [*inputs, *outputs]


def _stages(steps: Sequence[_Step]) -> list[list[_Step]]:
    """Return the steps of each delegate, and each kernel call by itself."""
    stages: list[list[_Step]] = []
    for step in steps:
        if step.kernel or not stages or stages[-1][0].kernel:
            stages.append([])
        stages[-1].append(step)
    # The exporter prepacks constants first.
    return [sorted(stage, key=lambda step: step.op != PREPACK) for stage in stages]


def _places(slots: Sequence[int], lifetimes: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the offset of each tensor in memory."""
    sizes = [0] * (max(slots, default=-1) + 1)
    for slot, (size, _, _) in zip(slots, lifetimes, strict=True):
        sizes[slot] = max(sizes[slot], -(-size // PLACE_ALIGNMENT) * PLACE_ALIGNMENT)
    return [sum(sizes[:slot]) for slot in slots]


def _tensor_value(value: TracedTensor, place: int | None) -> TensorValue:
    return TensorValue(
        value.dtype,
        value.bounds,
        tuple(range(len(value.dims))),
        dynamic=value.dynamic,
        data=None if value.state else value.data,
        place=None if place is None else (MEMORY_POOL, place),
        name=value.name if value.data is None and value.name and not value.state else None,
    )


def _constant_value(arg: Any) -> EValue:
    match arg:
        case None:
            return NullValue()
        case bool():
            return BoolValue(arg)
        case int():
            return IntValue(arg)
        case float():
            return DoubleValue(arg)
    raise TypeError(f"an argument of a kernel call cannot be a {type(arg).__name__}")


class _DelegateGraph:
    """The values and calls of one delegate."""

    def __init__(self, steps: Sequence[_Step], inputs: Iterable[Traced], outputs: Iterable[Traced]) -> None:
        self.named: dict[str, Span] = {}
        self._values: list[VkValue | TracedTensor] = []  # tensors until their memory is planned
        self._ids: dict[Any, int] = {}
        self._constants: list[VkConstant] = []
        self._life: dict[TracedTensor, list[int]] = {}  # first and last step
        self._inputs = tuple(self._traced(value, 0) for value in inputs)
        self._calls = tuple(self._call(number, step) for number, step in enumerate(steps))
        self._outputs = tuple(self._traced(value, len(steps)) for value in outputs)

    def graph(self) -> VkGraph:
        return VkGraph("0", self._planned_values(), self._calls, self._inputs, self._outputs, tuple(self._constants))

    def _call(self, number: int, step: _Step) -> VkCall:
        args = [self._argument(arg, number) for arg in step.args]
        out = self._argument(step.out, number)
        return VkCall(number, step.op, (*args, out))

    def _traced(self, value: Traced, step: int) -> int:
        if value not in self._ids:
            self._ids[value] = len(self._values)
            self._values.append(value if isinstance(value, TracedTensor) else VkSymInt())
        if isinstance(value, TracedTensor):
            self._life.setdefault(value, [step, step])[1] = step
        return self._ids[value]

    def _argument(self, arg: Any, step: int) -> int:
        if is_traced(arg):
            return self._traced(arg, step)
        if isinstance(arg, tuple) and any(is_traced(item) for item in arg):
            content: VkValue = VkValueList(tuple(self._argument(item, step) for item in arg))
        else:
            content = _vulkan_value(arg)
            key = (type(content), content)  # 0, 0.0 and False are equal and not the same
            if key in self._ids:
                return self._ids[key]
            self._ids[key] = len(self._values)
        self._values.append(content)
        return len(self._values) - 1

    def _planned_values(self) -> tuple[VkValue, ...]:
        """Return the values, with memory objects for computed tensors and states. Prepacked constants have none."""
        packed = {call.args[-1] for call in self._calls if call.name == PREPACK}
        planned = [value for value in self._life if value.data is None and self._ids[value] not in packed]
        lifetimes = [(value.nbytes, self._life[value][0], self._life[value][1]) for value in planned]
        planned += [value for value in self._life if value.data is not None and value.state]
        slots = shared_slots(lifetimes)
        slots += range(max(slots, default=-1) + 1, len(planned))  # states do not share
        slot = dict(zip(planned, slots, strict=False))
        return tuple(
            self._tensor(value, slot.get(value, -1)) if isinstance(value, TracedTensor) else value
            for value in self._values
        )

    def _tensor(self, value: TracedTensor, slot: int) -> VkTensor:
        dtype, constant = _IN_DELEGATE.get(value.dtype, value.dtype), -1
        if value.data is not None:
            constant = len(self._constants)
            self._constants.append(VkConstant(None, value.name, value.data.size))
            self.named[value.name] = value.data
        return VkTensor(dtype, value.bounds, constant, slot, dtype)


def _vulkan_value(arg: Any) -> VkValue:
    match arg:
        case None:
            return VkNull()
        case bool():
            return VkBool(arg)
        case int():
            return VkInt(arg)
        case float():
            return VkDouble(arg)
        case str():
            return VkString(arg)
        case tuple():
            return VkIntList(arg)
    raise TypeError(f"an argument of a delegate op cannot be a {type(arg).__name__}")
