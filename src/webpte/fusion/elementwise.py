"""Elementwise calls that follow one another, as one call with a program: see programs.py."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from ..graph import COPY, Bool, Call, Double, DType, Graph, Int, Null, String, TensorSpec, ValueList
from ..graph.programs import COPIES, ELEMENTWISE, JOINABLE, WEIGHTS, ProgramStep, format_program, uniforms
from .dims import LiveDims
from .numbers import Numbers
from .rewriter import Rewriter

WEIGHT = 64  # of one program: what a driver compiles in a third of a second
BINDINGS = 8  # storage buffers that every device offers to a dispatch
OUTPUTS = 2
BLOCK = 256  # bytes of a parameter block: sizes, one row of strides an input, the numbers

_DTYPES = {DType.FLOAT32, DType.FLOAT16, DType.WIDE_FLOAT16, DType.INT32, DType.BOOL}
_SCALED = {f"aten.{name}.{kind}" for name in ("add", "sub", "rsub") for kind in ("Tensor", "Scalar")}


def join_elementwise(graph: Graph) -> Graph:
    """One call for as many elementwise calls as fit. What others read of them ends a group, or is a second output."""
    rewriter = Rewriter(graph)
    if not rewriter.straight:
        return graph
    dims, numbers = LiveDims(graph), Numbers(rewriter)
    for index in reversed(range(len(graph.steps))):
        if joinable(rewriter, index):
            group = Group(rewriter, dims, numbers, index)
            group.grow()
            if group.pays:
                rewriter.replace(group.members, group.call(), index)
    return rewriter.done()


def arguments(call: Call) -> tuple[int, ...]:
    """Those that the result depends on."""
    return call.args[:1] if call.name in COPIES else call.args


def joinable(rewriter: Rewriter, index: int) -> bool:
    call = rewriter.call(index)
    if call is None or call.kernel or call.name not in JOINABLE | COPIES or len(call.outs) != 1:
        return False
    spec = rewriter.values[call.outs[0]]
    stored = isinstance(spec, TensorSpec) and spec.stored
    return not stored and all(_allowed(rewriter, v) for v in (*arguments(call), *call.outs))


def _allowed(rewriter: Rewriter, value_id: int) -> bool:
    match rewriter.values[value_id]:
        case TensorSpec(dtype=dtype):
            return dtype in _DTYPES and rewriter.settled(value_id)
        case String(value):
            return value.isidentifier()
        case Int() | Double() | Bool() | Null():
            return True
    return False


def _weight(call: Call) -> int:
    if call.name in ("aten.div.Tensor_mode", "aten.div.Scalar_mode"):
        return WEIGHTS["div_floor"]
    return WEIGHTS.get(call.name.split(".")[1], 1)


class Joined(NamedTuple):
    """A program with what it is applied to: tensors and numbers, by their ids."""

    steps: list[ProgramStep]
    tensors: list[int]
    numbers: list[int]
    outputs: list[str]

    def add_to(self, rewriter: Rewriter) -> tuple[int, int, int]:
        """The arguments of a call that runs it."""
        text = rewriter.add(String(format_program(self.steps, self.outputs)))
        return (text, rewriter.add(ValueList(tuple(self.tensors))), rewriter.add(ValueList(tuple(self.numbers))))


class Group:
    """Calls that end in one, the root, and run at its place."""

    def __init__(self, rewriter: Rewriter, dims: LiveDims, numbers: Numbers, root: int) -> None:
        self.rewriter = rewriter
        self.dims = dims
        self.known = numbers
        self.root = root
        self.members = {root}
        self.outputs = [self._call(root).outs[0]]  # the root's first

    def _call(self, index: int) -> Call:
        call = self.rewriter.call(index)
        assert call is not None
        return call

    def _arguments(self, index: int) -> tuple[int, ...]:
        call = self._call(index)
        return self.known.arguments(call, arguments(call))

    def _spec(self, value_id: int) -> TensorSpec | None:
        value = self.rewriter.values[value_id]
        return value if isinstance(value, TensorSpec) else None

    @property
    def pays(self) -> bool:
        """A copy that changes nothing is free as it is."""
        return sum(not self._is_view(self._call(index)) for index in self.members) > 1

    def _is_view(self, call: Call) -> bool:
        source, out = self._spec(call.args[0]), self._spec(call.outs[0])
        return call.name in COPIES and source is not None and out is not None and source.dtype is out.dtype

    def grow(self) -> None:
        """Take in whatever feeds the group alone. Later calls are tried first: all users of a value come before it."""
        tried = {self.root}
        queue = self._makers(self.root)
        while queue:
            index = -heapq.heappop(queue)
            if index in tried:
                continue
            tried.add(index)
            if self._take(index):
                for maker in self._makers(index):
                    heapq.heappush(queue, maker)

    def _makers(self, index: int) -> list[int]:
        """Negated steps, as heapq pops the least."""
        makers = (self.rewriter.maker(value_id) for value_id in self._arguments(index) if self._spec(value_id))
        found = sorted({-maker[0] for maker in makers if maker is not None})
        return [maker for maker in found if joinable(self.rewriter, -maker)]

    def _take(self, index: int) -> bool:
        (made,) = self._call(index).outs
        spec, root = self._spec(made), self._spec(self.outputs[0])
        assert spec is not None and root is not None
        if spec.dims != root.dims:
            return False
        others = set(self.rewriter.users[made]) - self.members
        seen = bool(others) or made in self.rewriter.outputs
        if seen and not (min(others, default=self.root + 1) > self.root and self.dims.same(made, self.outputs[0])):
            return False  # somebody needs it before the group runs, or it might get another shape
        outputs = [*self.outputs, made] if seen else self.outputs
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
        numbers = sum(map(self._numbers, members))
        block = 16 + row * (1 + inputs) + 16 * -(-numbers // 4)
        weight = sum(map(_weight, map(self._call, members)))
        bound = len(outputs) <= OUTPUTS and inputs + len(outputs) <= BINDINGS
        return bound and block <= BLOCK and weight <= WEIGHT

    def _numbers(self, index: int) -> int:
        call = self._call(index)
        literals = [a for a in self._arguments(index) if isinstance(self.rewriter.values[a], (Int, Double, Bool))]
        return uniforms(call.name, sum(not self._is_unit(call, value_id) for value_id in literals))

    def _is_unit(self, call: Call, value_id: int) -> bool:
        """Whether a number is a factor of 1: such a one is part of the program."""
        factor = call.name in _SCALED and value_id == call.args[-1]
        return factor and self.rewriter.values[value_id] in (Int(1), Double(1.0))

    def _inputs(self, members: set[int]) -> list[int]:
        made = {out for index in members for out in self._call(index).outs}
        read = (value_id for index in sorted(members) for value_id in self._arguments(index))
        return list(dict.fromkeys(v for v in read if v not in made and self._spec(v) is not None))

    def program(self) -> Joined:
        """The group as a program."""
        inputs = self._inputs(self.members)
        names = {value_id: f"x{i}" for i, value_id in enumerate(inputs)}
        numbers: list[int] = []
        steps: list[ProgramStep] = []
        for index in sorted(self.members):
            call = self._call(index)
            args = tuple(self._argument(call, value_id, names, numbers) for value_id in self._arguments(index))
            (made,) = call.outs
            names[made] = f"v{len(steps)}"
            spec = self._spec(made)
            assert spec is not None
            steps.append(ProgramStep(spec.dtype.short, COPY if call.name in COPIES else call.name, args))
        return Joined(steps, inputs, numbers, [names[out] for out in self.outputs])

    def call(self) -> Call:
        """The call that takes the group's place."""
        args = self.program().add_to(self.rewriter)
        return Call(ELEMENTWISE, args, tuple(self.outputs), self._call(self.root).origin)

    def _argument(self, call: Call, value_id: int, names: dict[int, str], numbers: list[int]) -> str:
        match self.rewriter.values[value_id]:
            case TensorSpec():
                return names[value_id]
            case String(value):
                return f"'{value}'"
            case Null():
                return "-"
        if self._is_unit(call, value_id):
            return "1"
        numbers.append(value_id)
        return f"n{len(numbers) - 1}"
