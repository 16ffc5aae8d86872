"""Fuse consecutive elementwise calls into one call with a program: see lowering/programs.py."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Any, NamedTuple

from ..graph import (
    LIVE_SCALARS,
    Bool,
    Call,
    Double,
    DType,
    Graph,
    Int,
    Null,
    ProgramLine,
    String,
    TensorSpec,
    Value,
    ValueList,
    format_program,
    numel,
)
from ..graph.names import COPY, ELEMENTWISE, PREPACK
from ..lowering import elementwise_op, find
from ..lowering.formulas import Formula, symbol
from ..lowering.programs import ElementwiseProgram, compile_program
from .dims import SymbolicDims
from .rewriter import Rewriter

MAX_PROGRAM_WEIGHT = 64  # a driver compiles such a program in a third of a second
MAX_STORAGE_BUFFERS = 8  # per dispatch, on every device
MAX_OUTPUTS = 2
MAX_PARAMETER_BYTES = 256  # of sizes, one row of strides for each input, and numbers

_DTYPES = {DType.FLOAT32, DType.FLOAT16, DType.WIDE_FLOAT16, DType.INT32, DType.BOOL}
SCALE = "alpha"  # the name of a factor that is mostly 1, and is then part of the program


def join_elementwise(graph: Graph) -> Graph:
    """Fuse elementwise calls into groups. A value with other readers ends a group, or is its second output."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    members, dims = FusibleCalls(rewriter), SymbolicDims(graph)
    for index in reversed(range(len(graph.steps))):
        if members.at(index) is not None:
            group = FusionGroup(members, dims, index)
            group.grow()
            if group.is_worthwhile:
                rewriter.replace(group.members, group.call(), index)
    return rewriter.result()


class FusibleCall(NamedTuple):
    """A call that can be a step of a program."""

    call: Call
    name: str  # of the step
    arguments: dict[str, int]  # those that the result depends on
    formula: Formula

    @property
    def out(self) -> int:
        return self.call.outs[0]


class FusibleCalls:
    """The calls of a graph that can be steps of programs."""

    def __init__(self, rewriter: Rewriter, *further: DType) -> None:
        self.rewriter = rewriter
        self._dtypes = _DTYPES.union(further)
        self._numbers = ConstantScalars(rewriter)
        self._cache: dict[int, tuple[Call, FusibleCall | None]] = {}

    def at(self, index: int) -> FusibleCall | None:
        """Return the call at a step, if it is fusible."""
        call = self.rewriter.call(index)
        if call is None or call.kernel or len(call.outs) != 1:
            return None
        entry = self._cache.get(index)
        if entry is None or entry[0] is not call:
            entry = self._cache[index] = call, self._fusible(call)
        return entry[1]

    def _fusible(self, call: Call) -> FusibleCall | None:
        registered = elementwise_op(call)
        if registered is None or registered[1].compute is None:  # `webpte compare` needs the reference of every step
            return None
        name, op = registered
        values = self.rewriter.arguments(call)
        arguments = {operand: values[operand] for operand in op.traits.operands}
        spec = self.rewriter.values[call.outs[0]]
        if not isinstance(spec, TensorSpec) or spec.stored:
            return None
        if not all(self._allowed(value_id) for value_id in (*arguments.values(), *call.outs)):
            return None
        arguments = self._numbers.arguments(arguments, op.traits.numbers)
        assert callable(op.traits.elementwise)
        try:
            formula = op.traits.elementwise(*map(self._term, arguments.values()), out=symbol(spec.dtype))
        except Exception:  # the lowering computes the formula too, and reports the error
            return None
        return FusibleCall(call, name, arguments, formula)

    def _allowed(self, value_id: int) -> bool:
        match self.rewriter.values[value_id]:
            case TensorSpec(dtype=dtype):
                return dtype in self._dtypes and self.rewriter.is_immutable(value_id)
            case String(value):
                return value.isidentifier()
            case Int() | Double() | Bool() | Null():
                return True
        return False

    def _term(self, value_id: int) -> Any:
        """Return an argument as formulas take it."""
        match self.rewriter.values[value_id]:
            case TensorSpec(dtype=dtype):
                return symbol(dtype)
            case Int(value) | Double(value) | Bool(value) | String(value):
                return value
        return None


class BoundProgram(NamedTuple):
    """A program with the ids of its tensors and numbers."""

    steps: list[ProgramLine]
    tensors: list[int]
    numbers: list[int]
    outputs: list[str]

    def compiled(self, rewriter: Rewriter) -> ElementwiseProgram:
        """Return the program as the device runs it."""
        specs = [rewriter.values[value_id] for value_id in self.tensors]
        dtypes = tuple(spec.dtype for spec in specs if isinstance(spec, TensorSpec))
        values = [rewriter.values[value_id] for value_id in self.numbers]
        numbers = tuple(value.value for value in values if isinstance(value, (Int, Double, Bool)))
        text = format_program(self.steps, self.outputs)
        return compile_program(text, dtypes, numbers, tuple(map(type, numbers)))[0]

    def add_to(self, rewriter: Rewriter) -> tuple[int, int, int]:
        """Add the arguments of a call that runs the program, and return their ids."""
        text = rewriter.add(String(format_program(self.steps, self.outputs)))
        return (text, rewriter.add(ValueList(tuple(self.tensors))), rewriter.add(ValueList(tuple(self.numbers))))


class FusionGroup:
    """Calls that feed one call, the root, and run at its step."""

    def __init__(self, calls: FusibleCalls, dims: SymbolicDims, root: int) -> None:
        self.calls = calls
        self.rewriter = calls.rewriter
        self.dims = dims
        self.root = root
        self.members = {root}
        self.outputs = [self._member(root).out]  # that of the root first

    def _member(self, index: int) -> FusibleCall:
        member = self.calls.at(index)
        assert member is not None
        return member

    def _spec(self, value_id: int) -> TensorSpec | None:
        value = self.rewriter.values[value_id]
        return value if isinstance(value, TensorSpec) else None

    @property
    def is_worthwhile(self) -> bool:
        """Return whether the group has more than one call, without copies that change nothing, which are free."""
        return sum(not self._is_view(self._member(index)) for index in self.members) > 1

    def _is_view(self, member: FusibleCall) -> bool:
        specs = [self._spec(value_id) for value_id in (*member.arguments.values(), member.out)]
        return member.name == COPY and len({spec.dtype for spec in specs if spec is not None}) == 1

    def grow(self) -> None:
        """Add all calls that feed only the group. Later calls are tried first, so that all readers precede a value."""
        visited = {self.root}
        queue = self._producers(self.root)
        while queue:
            index = -heapq.heappop(queue)
            if index in visited:
                continue
            visited.add(index)
            if self._take(index):
                for producer in self._producers(index):
                    heapq.heappush(queue, producer)

    def _producers(self, index: int) -> list[int]:
        """Return negated steps, since heapq pops the smallest."""
        arguments = self._member(index).arguments.values()
        producers = (self.rewriter.producer(value_id) for value_id in arguments if self._spec(value_id))
        steps = sorted({-producer[0] for producer in producers if producer is not None})
        return [step for step in steps if self.calls.at(-step) is not None]

    def _take(self, index: int) -> bool:
        out = self._member(index).out
        spec, root = self._spec(out), self._spec(self.outputs[0])
        assert spec is not None and root is not None
        if spec.dims != root.dims:
            return False
        others = set(self.rewriter.users[out]) - self.members
        visible = bool(others) or out in self.rewriter.outputs
        if visible and not (min(others, default=self.root + 1) > self.root and self.dims.same(out, self.outputs[0])):
            return False  # it is read before the group runs, or its shape may differ
        outputs = [*self.outputs, out] if visible else self.outputs
        if not self._fits(self.members | {index}, outputs):
            return False
        self.members.add(index)
        self.outputs = outputs
        return True

    def _fits(self, members: set[int], outputs: list[int]) -> bool:
        inputs = len(self._inputs(members))
        root = self._spec(self.outputs[0])
        assert root is not None
        row = 16 if len(root.dims) <= 4 else 32
        formulas = [self._member(index).formula for index in members]
        numbers = sum(formula.uniforms for formula in formulas)
        block = 16 + row * (1 + inputs) + 16 * -(-numbers // 4)
        bound = len(outputs) <= MAX_OUTPUTS and inputs + len(outputs) <= MAX_STORAGE_BUFFERS
        return (
            bound and block <= MAX_PARAMETER_BYTES and sum(formula.weight for formula in formulas) <= MAX_PROGRAM_WEIGHT
        )

    def _inputs(self, members: set[int]) -> list[int]:
        outs = {self._member(index).out for index in members}
        read = (value_id for index in sorted(members) for value_id in self._member(index).arguments.values())
        return list(dict.fromkeys(v for v in read if v not in outs and self._spec(v) is not None))

    def program(self) -> BoundProgram:
        """Return the group as a program."""
        inputs = self._inputs(self.members)
        names = {value_id: f"x{i}" for i, value_id in enumerate(inputs)}
        numbers: list[int] = []
        steps: list[ProgramLine] = []
        for index in sorted(self.members):
            member = self._member(index)
            args = tuple(self._argument(name, v, names, numbers) for name, v in member.arguments.items())
            names[member.out] = f"v{len(steps)}"
            spec = self._spec(member.out)
            assert spec is not None
            steps.append(ProgramLine(spec.dtype.short, member.name, args))
        return BoundProgram(steps, inputs, numbers, [names[out] for out in self.outputs])

    def call(self) -> Call:
        """Return the call that replaces the group."""
        origin = self._member(self.root).call.origin
        program, tensors, numbers = self.program().add_to(self.rewriter)
        return self.rewriter.make(ELEMENTWISE, self.outputs, origin, program=program, tensors=tensors, numbers=numbers)

    def _argument(self, name: str, value_id: int, names: dict[int, str], numbers: list[int]) -> str:
        match self.rewriter.values[value_id]:
            case TensorSpec():
                return names[value_id]
            case String(value):
                return f"'{value}'"
            case Null():
                return "-"
            case Int(value) | Double(value) if name == SCALE and value == 1:
                return "1"
        numbers.append(value_id)
        return f"n{len(numbers) - 1}"


class ConstantScalars:
    """Tensors of one element whose value is known.

    Programs take them as numbers, which need no binding.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._ids: dict[int, int | None] = {}  # tensor -> the number that replaces it

    def arguments(self, arguments: dict[str, int], names: Collection[str]) -> dict[str, int]:
        """Return the arguments, with numbers for the tensors of `names` that do not widen the result."""
        numbers = {name: number for name in names if (number := self._number(arguments[name])) is not None}
        widest = max((self._rank(value_id) for name, value_id in arguments.items() if name not in numbers), default=-1)
        return {
            name: numbers[name] if name in numbers and self._rank(value_id) <= widest else value_id
            for name, value_id in arguments.items()
        }

    def _rank(self, value_id: int) -> int:
        spec = self._rewriter.values[value_id]
        return len(spec.dims) if isinstance(spec, TensorSpec) else -1

    def _number(self, value_id: int) -> int | None:
        if value_id not in self._ids:
            number = self._read(value_id)
            self._ids[value_id] = None if number is None else self._rewriter.add(number)
        return self._ids[value_id]

    def _read(self, value_id: int) -> Value | None:
        rewriter = self._rewriter
        spec = rewriter.values[value_id]
        if not isinstance(spec, TensorSpec) or numel(spec.dims) != 1 or not rewriter.is_immutable(value_id):
            return None
        if spec.constant is not None:
            value = spec.constant.array(spec.dims).item()
            return Bool(value) if isinstance(value, bool) else Int(value) if isinstance(value, int) else Double(value)
        producer = rewriter.producer(value_id)
        if producer is None:
            return None
        _, call = producer
        if call.name == PREPACK:
            return self._read(rewriter.arguments(call)["x"])
        op = find(call)
        if op is None or op.traits.fills is None:
            return None
        value = rewriter.values[op.arguments(call)[op.traits.fills]]
        fixed = not any(isinstance(rewriter.values[v], LIVE_SCALARS) for v in rewriter.flatten(call.args))
        return value if fixed and isinstance(value, (Int, Double, Bool)) else None
