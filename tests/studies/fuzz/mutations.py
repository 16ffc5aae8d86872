"""Wrong in structure, right as bytes: programs whose values, calls and instructions were changed one at a time.

Random bytes rarely get past the container's checks. These files do, and show what is believed after them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_bytes, vk_blob
from webpte import container as c
from webpte.container import DType

INTEGERS = [0, 1, -1, 2, 3, 7, 16, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**33, 2**62, -(2**63), 2**63 - 1]
SIZES = [0, 1, 2, 3, 4, 5, 8, 64, 1000, 65536, 2**20, 2**24, 2**31 - 1]
FLOATS = [0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e38, 1e300, -1e-300]
KERNELS = [
    "aten::add.out",
    "aten::cat.out",
    "aten::cumsum.out",
    "aten::full.out",
    "aten::lgamma.out",
    "aten::view_copy.out",
    "aten::sym_size.int",
    "aten::_local_scalar_dense",
    "executorch_prim::add.Scalar",
    "executorch_prim::et_view.default",
]
VK_DTYPES = [dtype for dtype in DType if dtype.vulkan is not None]


@dataclass(frozen=True)
class Base:
    """A program to start from, and the op names that mutants may call."""

    original: bytes
    program: c.ProgramFile
    names: tuple[str, ...]

    @classmethod
    def of(cls, data: bytes, names: Sequence[str] = ()) -> Base:
        program = c.parse_program(c.MappedFile.from_bytes("base.pte", data))
        own = (call.name for m in program.methods for d in m.delegates for call in c.parse_vulkan(d.blob).calls)
        return cls(data, program, tuple(sorted({*own, *names})))


def mutant(base: Base, random: Random) -> bytes | None:
    """Return the bytes of a changed program; None where a change cannot be written down."""
    methods = []
    for method in base.program.methods:
        inside = random.random() < 0.75
        delegates = []
        for delegate in method.delegates:
            graph = c.parse_vulkan(delegate.blob)
            if inside:
                graph = _changed_graph(random, graph, base.names)
            constants = [k if k.key is not None or k.span is None else bytes(k.span.view()) for k in graph.constants]
            blob = _written(lambda g=graph, k=constants: vk_blob(g.values, g.calls, g.inputs, g.outputs, k))  # type: ignore[misc]
            if blob is None:
                return None
            delegates.append(DelegateBlob(blob, delegate.backend, delegate.compile_specs))
        plan = Method(method.name, method.values, method.inputs, method.outputs, method.instructions, delegates)
        methods.append(plan if inside else _changed_plan(random, plan))
    named = {key: bytes(span.view()) for key, span in base.program.named_data.items()}
    return _written(lambda: pte_bytes(methods, named_data=named))


def _written(write: Callable[[], bytes]) -> bytes | None:
    try:
        return write()
    except (struct.error, OverflowError, ValueError):  # a number that the format has no room for
        return None


def _ids(random: Random, ids: Sequence[int], count: int) -> tuple[int, ...]:
    changed, choice = list(ids), random.random()
    if choice < 0.2 and changed:
        changed.pop(random.randrange(len(changed)))
    elif choice < 0.4:
        changed.insert(random.randrange(len(changed) + 1), random.randrange(count))
    elif changed:
        changed[random.randrange(len(changed))] = random.randrange(count)
    return tuple(changed)


def _sizes(random: Random, sizes: Sequence[int]) -> tuple[int, ...]:
    changed, choice = list(sizes), random.random()
    if choice < 0.2:
        changed = changed[:-1]
    elif choice < 0.4:
        changed.append(random.choice(SIZES))
    elif choice < 0.45:
        changed = [random.choice(SIZES) for _ in range(random.randrange(17))]
    elif changed:
        changed[random.randrange(len(changed))] = random.choice(SIZES)
    return tuple(changed)


def _list(random: Random, items: Sequence[int], fresh: Callable[[], int]) -> tuple[int, ...]:
    changed, choice = list(items), random.random()
    if choice < 0.3:
        changed = changed[:-1]
    elif choice < 0.5:
        changed.append(fresh())
    elif changed:
        changed[random.randrange(len(changed))] = fresh()
    return tuple(changed)


def _vk_value(random: Random, value: Any, count: int, constants: int) -> Any:
    keep, choice = random.random() < 0.8, random.random()
    if keep and isinstance(value, c.VkTensor):
        if choice < 0.5:
            return replace(value, dims=_sizes(random, value.dims))
        if choice < 0.7:
            return replace(value, dtype=random.choice(VK_DTYPES))
        if choice < 0.85:
            return replace(value, constant_id=random.randrange(-1, constants) if constants else -1)
        return replace(value, staging_dtype=random.choice([None, *VK_DTYPES]))
    if keep and isinstance(value, c.VkInt):
        return c.VkInt(random.choice(INTEGERS))
    if keep and isinstance(value, c.VkDouble):
        return c.VkDouble(random.choice(FLOATS))
    if keep and isinstance(value, c.VkIntList):
        return c.VkIntList(_list(random, value.values, lambda: random.choice(INTEGERS)))
    if keep and isinstance(value, c.VkValueList):
        return c.VkValueList(_list(random, value.ids, lambda: random.randrange(count)))
    other: list[Any] = [
        c.VkNull(),
        c.VkInt(random.choice(INTEGERS)),
        c.VkDouble(random.choice(FLOATS)),
        c.VkBool(True),
        c.VkString("x"),
        c.VkTensor(random.choice(VK_DTYPES), tuple(random.choice([1, 2, 4]) for _ in range(random.randrange(5)))),
        c.VkIntList((1, 2)),
        c.VkDoubleList((1.0,)),
        c.VkBoolList((True,)),
        c.VkValueList((random.randrange(count),)),
        c.VkSymInt(0),
    ]
    return random.choice(other)


def _changed_graph(random: Random, graph: c.VkGraph, names: Sequence[str]) -> c.VkGraph:
    values, calls, inputs, outputs = list(graph.values), list(graph.calls), graph.inputs, graph.outputs
    count = len(values)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        choice = random.random()
        at = random.randrange(len(calls)) if calls else 0
        if choice < 0.35 and count:
            index = random.randrange(count)
            values[index] = _vk_value(random, values[index], count, len(graph.constants))
        elif choice < 0.6 and calls:
            calls[at] = replace(calls[at], args=_ids(random, calls[at].args, count))
        elif choice < 0.68 and calls and names:
            calls[at] = replace(calls[at], name=random.choice(names))
        elif choice < 0.76 and calls:
            calls.pop(at)
        elif choice < 0.82 and calls:
            calls.insert(at, random.choice(calls))
        elif choice < 0.88 and calls:
            other = random.randrange(len(calls))
            calls[at], calls[other] = calls[other], calls[at]
        elif choice < 0.94:
            inputs = _ids(random, inputs, count)
        else:
            outputs = _ids(random, outputs, count)
    return replace(graph, values=tuple(values), calls=tuple(calls), inputs=inputs, outputs=outputs)


def _evalue(random: Random, value: Any, count: int) -> Any:
    keep, choice = random.random() < 0.8, random.random()
    if keep and isinstance(value, c.TensorValue):
        if choice < 0.6 and value.data is None:
            sizes = _sizes(random, value.sizes)
            return replace(value, sizes=sizes, dim_order=tuple(range(len(sizes))))
        if choice < 0.8:
            return replace(value, dtype=random.choice(list(DType)))
        return replace(value, dynamic=not value.dynamic)
    other: list[Any] = [
        c.NullValue(),
        c.IntValue(random.choice(INTEGERS)),
        c.DoubleValue(random.choice(FLOATS)),
        c.BoolValue(False),
        c.StringValue("s"),
        c.IntListValue((random.randrange(count),)),
        c.TensorListValue((random.randrange(count),)),
        c.OptionalTensorListValue((None, random.randrange(count))),
        c.DoubleListValue((1.0,)),
        c.TensorValue(DType.FLOAT32, (2, 2), (0, 1), place=ALONE),
    ]
    return random.choice(other)


def _changed_plan(random: Random, method: Method) -> Method:
    values, instructions = list(method.values), list(method.instructions)
    inputs, outputs, count = tuple(method.inputs), tuple(method.outputs), len(method.values)
    for _ in range(random.choice([1, 1, 2]) if count else 0):
        choice = random.random()
        at = random.randrange(len(instructions)) if instructions else 0
        if choice < 0.35:
            index = random.randrange(count)
            values[index] = _evalue(random, values[index], count)
        elif choice < 0.5:
            inputs = _ids(random, inputs, count)
        elif choice < 0.65:
            outputs = _ids(random, outputs, count)
        elif choice < 0.8 and instructions:
            instructions[at] = _instruction(random, instructions[at], count)
        elif choice < 0.9:
            instructions.insert(at, _new_instruction(random, count, len(instructions)))
        elif instructions:
            instructions.pop(at)
    return Method(method.name, values, inputs, outputs, instructions, method.delegates)


def _instruction(random: Random, instruction: Any, count: int) -> Any:
    if hasattr(instruction, "args"):
        instruction = replace(instruction, args=_ids(random, instruction.args, count))
    if isinstance(instruction, c.KernelCall) and random.random() < 0.3:
        instruction = replace(instruction, op=random.choice(KERNELS))
    return instruction


def _new_instruction(random: Random, count: int, instructions: int) -> c.Instruction:
    new: list[c.Instruction] = [
        c.MoveCall(random.randrange(count), random.randrange(count)),
        c.FreeCall(random.randrange(count)),
        c.JumpFalseCall(random.randrange(count), random.randrange(instructions + 1)),
        c.KernelCall(random.choice(KERNELS), tuple(random.randrange(count) for _ in range(random.randrange(6)))),
    ]
    return random.choice(new)
