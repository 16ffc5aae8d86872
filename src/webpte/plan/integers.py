"""Integers of 64 bits on a device that has 32.

Outside delegates a call that could need more than 32 bits runs on the CPU, in 64. Inside, ExecuTorch narrows integers
to 32 bits: a call that could need more is followed by an overflow check. A call that cannot need more, by its
constants, bounds and literals, runs unchanged.

Inputs are assumed to fit 32 bits, as do results of kernels without a rule. A method whose values were found not to fit
is planned again with those values `beyond`: the calls outside delegates that read them run on the CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..errors import Problem, UnsupportedError, remedies
from ..graph import (
    CHECK_FLAGS,
    Bool,
    Call,
    Constant,
    Double,
    DType,
    Graph,
    Int,
    Jump,
    Step,
    String,
    SymBool,
    SymInt,
    TensorSpec,
    Value,
    keep_out,
)
from ..graph.names import OVERFLOW
from ..lowering import NO_INTEGERS, Integers, gpu_op, overload
from ..lowering.integers import BITS32, BITS64, Range

_TRUTH = Range(0, 1)
_OF_DTYPE = {DType.BOOL: _TRUTH, DType.UINT8: Range(0, 255), DType.INT8: Range(-128, 127), DType.INT64: BITS64}
INTEGERS = frozenset({DType.INT32, *_OF_DTYPE})


def range_of(dtype: DType) -> Range:
    """Return the range of an integer dtype."""
    return _OF_DTYPE.get(dtype, BITS32)


def facts_of(call: Call) -> Integers:
    """Return the integer behavior that an op declares."""
    op = overload(call)
    return NO_INTEGERS if op is None else op.traits.of_integers


def arguments_of(call: Call) -> dict[str, int]:
    """Return the values that a call passes, by the parameter names of its op."""
    op = overload(call)
    return {} if op is None else op.shared_arguments(call)


def constant_range(constant: Constant) -> Range:
    array = constant.array((-1,))
    return Range(int(array.min()), int(array.max())) if array.size else Range(0, 0)


class IntegerRanges:
    """The ranges of a graph's values, computed call by call in order."""

    def __init__(self, graph: Graph, constants: Mapping[int, Range]) -> None:
        self.graph = graph
        self._known: dict[int, Range] = dict(constants)
        self._changing = changing(graph)

    def of(self, value_id: int) -> Range | None:
        """Return the range of a value; None if it is not an integer."""
        value = self.graph.values[value_id]
        if isinstance(value, (Int, Bool)):
            return Range(int(value.value), int(value.value))
        if isinstance(value, Double):  # the exporter writes 1 as 1.0 where it has that already
            return Range(int(value.value), int(value.value)) if value.value.is_integer() else None
        if isinstance(value, TensorSpec):
            if value.host_dtype not in INTEGERS:
                return None
            return self._known.get(value_id, range_of(value.host_dtype))
        return _TRUTH if isinstance(value, SymBool) else self._known.get(value_id, BITS32)

    def record(self, value_id: int, values: Range) -> None:
        if value_id not in self._changing:
            self._known[value_id] = values

    def exact(self, call: Call, limit: Range) -> Range | None:
        """Return the range of a call's results in unbounded integers, with operands within `limit`.

        None for a call that is not arithmetic.
        """
        facts = facts_of(call)
        if facts.exact is None:
            return None
        exact = facts.exact(_Operands(self, call, arguments_of(call), limit))
        return BITS64 if exact is None else exact

    def moved(self, call: Call, limit: Range) -> Range:
        """Return the range of integers that a call copies from its operands unchanged."""
        moves = facts_of(call).moves
        if not moves:
            return limit
        arguments = arguments_of(call)
        chosen = self.graph.flatten([arguments[name] for name in moves if name in arguments])
        ranges = [r.cut(limit) for r in map(self.of, chosen) if r is not None]
        return Range(min(r.low for r in ranges), max(r.high for r in ranges)) if ranges else limit


def changing(graph: Graph) -> frozenset[int]:
    """Return the values that change during a method: state, and values that several calls write."""
    counts: dict[int, int] = dict.fromkeys(graph.inputs, 1)
    for call in graph.calls:
        for out in call.outs:
            counts[out] = counts.get(out, 0) + 1
    jumps = any(isinstance(step, Jump) for step in graph.steps)
    kept = {i for i, value in enumerate(graph.values) if isinstance(value, TensorSpec) and value.mutable}
    return frozenset({i for i, count in counts.items() if count > 1 or jumps} | kept)


class _Operands:
    """The operands of a rule: lowering.integers.Operands."""

    def __init__(self, ranges: IntegerRanges, call: Call, arguments: Mapping[str, int], limit: Range) -> None:
        self._ranges = ranges
        self._call = call
        self._arguments = arguments
        self._limit = limit

    def range(self, name: str) -> Range | None:
        operand = self._ranges.of(self._arguments[name]) if name in self._arguments else None
        return None if operand is None else operand.cut(self._limit)

    def literal(self, name: str) -> int | None:
        value = self._ranges.graph.values[self._arguments[name]] if name in self._arguments else None
        return value.value if isinstance(value, Int) else None

    def dims(self, name: str) -> tuple[int, ...]:
        return self._ranges.graph.tensor(self._arguments[name]).dims

    def out_dims(self) -> tuple[int, ...]:
        return self._ranges.graph.tensor(self._call.outs[0]).dims


LOOKED_AT = 1 << 16  # bytes of a constant


def exact_integers(graph: Graph, cpu_kernels: Container[str], beyond: Collection[int] = ()) -> Graph:
    """Return the graph with calls that need 64 bits on the CPU, and overflow checks after those that may exceed 32.

    `beyond` are values that are known to exceed 32 bits.
    """
    if any(call.name == OVERFLOW for call in graph.calls):  # a plan's own graph, planned again
        return graph
    constants = dict(_constants(graph))
    wide = {value_id for value_id, values in constants.items() if not values.within(BITS32)}
    _refuse_constants(graph, wide)
    return _Exact(graph, cpu_kernels, constants, wide, beyond).run()


def overflow_message(graph: Graph, check: Call) -> str:
    """Return the message of an overflow check that failed."""
    name = graph.values[check.args[-1]]
    assert isinstance(name, String)
    problem = f"{name.value} ({check.origin}) has a result beyond the device's 32-bit integers, or divided by zero"
    if check.origin.delegate is None:
        return problem
    return f"{problem}. Outside delegates such integers are computed in 64 bits. {keep_out([name.value])}"


def _constants(graph: Graph) -> Iterator[tuple[int, Range]]:
    """Return the ranges of integer constants. Large ones whose dtype always fits are not read."""
    for value_id, value in enumerate(graph.values):
        constant = value.constant if isinstance(value, TensorSpec) else None
        if constant is None or constant.dtype not in (DType.INT32, DType.INT64):
            continue
        if constant.dtype is DType.INT64 or constant.nbytes <= LOOKED_AT:
            yield value_id, constant_range(constant)


def _refuse_constants(graph: Graph, wide: set[int]) -> None:
    """Raise UnsupportedError for constants beyond 32 bits that delegates use."""
    problems = []
    for value_id in sorted(wide):
        spec = graph.tensor(value_id)
        users = [c for c in graph.calls if not c.kernel and value_id in graph.flatten(c.args)]
        narrowed = _narrowed_copies(graph, spec)
        if users or narrowed:
            problems.append(_beyond(spec, value_id, users or narrowed))
    if problems:
        lines = "\n  ".join(map(str, problems))
        advice = " ".join(remedies(problems))
        raise UnsupportedError(
            f"{graph.name}: {lines}\n{advice}", [problem.subject for problem in problems], code="wide_integer"
        )


def _beyond(spec: TensorSpec, value_id: int, users: list[Call]) -> Problem:
    assert spec.constant is not None
    low, high = constant_range(spec.constant)
    detail = f"(value {value_id}) holds integers from {low} to {high}; delegates have 32 bits"
    names = sorted({call.name for call in users if not call.name.startswith("et_vk.")})
    return Problem(
        "dtype", f"constant {spec.constant.name}", detail, tuple(str(c.origin) for c in users), keep_out(names)
    )


def _narrowed_copies(graph: Graph, spec: TensorSpec) -> list[Call]:
    """Return the calls in delegates that use the same constant, truncated to 32 bits."""
    assert spec.constant is not None
    cut = spec.constant.array((-1,)).astype(np.int32).tobytes()

    def same(value: Value) -> bool:
        constant = value.constant if isinstance(value, TensorSpec) else None
        if constant is None or constant.dtype is not DType.INT32 or constant.nbytes != len(cut):
            return False
        return bool(constant.array((-1,)).tobytes() == cut)

    copies = {value_id for value_id, value in enumerate(graph.values) if same(value)}
    copies |= {out for call in graph.calls if copies.intersection(call.args) for out in call.outs}  # prepacked
    return [call for call in graph.calls if not call.kernel and copies.intersection(graph.flatten(call.args))]


class _Exact:
    def __init__(
        self,
        graph: Graph,
        cpu_kernels: Container[str],
        constants: dict[int, Range],
        wide: set[int],
        beyond: Collection[int],
    ) -> None:
        self.graph = graph
        self.cpu_kernels = cpu_kernels
        self.ranges = IntegerRanges(graph, constants)
        self.values: list[Value] = list(graph.values)
        self.wide_constants = frozenset(wide)
        self.wide = {*wide, *beyond}  # on the host, and perhaps beyond 32 bits
        self.beyond = set(beyond)  # those that were found to be, and what is computed from them
        self.declared = _declared(graph)
        self.narrow: set[int] = set()  # values inside delegates that have 32 bits in the model too

    def run(self) -> Graph:
        steps: list[Step] = []
        starts = []
        for step in self.graph.steps:
            starts.append(len(steps))
            steps += [step] if isinstance(step, Jump) else self._call(step)
        starts.append(len(steps))
        moved = tuple(replace(s, target=starts[s.target]) if isinstance(s, Jump) else s for s in steps)
        return replace(self.graph, values=tuple(self.values), steps=moved)

    def _call(self, call: Call) -> Iterator[Call]:
        on_device = gpu_op(call, self.graph) is not None
        if call.kernel and on_device and self._wants_host(call):
            call, on_device = replace(call, on_host=True), False
        yield call
        exact = self.ranges.exact(call, BITS32 if on_device else BITS64)
        integers = [out for out in call.outs if self._integer(out)]
        self._follow(call, integers, exact, on_device)
        if exact is not None and isinstance(self.graph.values[call.outs[0]], SymInt):
            self.ranges.record(call.outs[0], exact.cut(BITS32))  # kernels read no others
        if on_device and exact is not None and not exact.within(BITS32):
            yield from self._check(call, integers)

    def _integer(self, value_id: int) -> bool:
        value = self.graph.values[value_id]
        return isinstance(value, TensorSpec) and value.host_dtype in INTEGERS

    def _follow(self, call: Call, outs: list[int], exact: Range | None, on_device: bool) -> None:
        """Record the ranges of a call's results."""
        if self._of_32_bits(call):
            self.narrow.update(outs)
        limit = BITS32 if on_device else BITS64
        result = self.ranges.moved(call, limit) if exact is None else exact.cut(limit)
        if not on_device and not call.on_host and exact is None:  # a kernel of the CPU's own; it mostly makes indices
            result = BITS32
        for out in outs:
            own = range_of(self.graph.tensor(out).host_dtype)
            self.ranges.record(out, result if result.within(own) else own)  # narrower integers wrap, as in PyTorch
            if own is BITS64 and not on_device and not result.within(BITS32):
                self.wide.add(out)
                if self.beyond.intersection(self.graph.flatten(call.args)):
                    self.beyond.add(out)

    def _wants_host(self, call: Call) -> bool:
        operands = self.graph.flatten(call.args)
        if call.name not in self.cpu_kernels:
            return False
        specs = [v for i in (*operands, *call.outs) if isinstance(v := self.graph.values[i], TensorSpec)]
        if any(spec.host_dtype is DType.FLOAT64 for spec in specs):
            return True
        if self.wide_constants.intersection(operands) or self.beyond.intersection(operands):
            return True
        dtypes = {spec.host_dtype for out in call.outs if isinstance(spec := self.graph.values[out], TensorSpec)}
        if dtypes & {DType.INT64, DType.BOOL, DType.INT8, DType.UINT8} and self.wide.intersection(operands):
            return True
        if DType.INT64 not in dtypes:
            return False
        exact = self.ranges.exact(call, BITS32)
        grows = exact is not None and not exact.within(BITS32) and not facts_of(call).one_beyond
        return grows or self._wide_literal(call)

    def _wide_literal(self, call: Call) -> bool:
        if facts_of(call).positions:
            return False
        literals = [v for a in call.args if isinstance(v := self.graph.values[a], Int)]
        return any(not BITS32.low <= literal.value <= BITS32.high for literal in literals)

    # -- checks on the device --------------------------------------------------------------------------------------

    def _check(self, call: Call, outs: list[int]) -> Iterator[Call]:
        if len(outs) != 1 or not self._has_64_bits(outs[0]):
            return
        check = facts_of(call).check
        if check is None or (check.is_conversion and self._integer(call.args[0])):
            return
        arguments = arguments_of(call)
        first, second = (self._add(Int(0)) if n is None else arguments[n] for n in (check.first, check.second))
        factor = self.ranges.of(arguments[check.alpha]) if check.alpha is not None else None
        alpha = check.sign * (factor.low if factor is not None else 1)
        yield self._overflow(call, check.kind, first, second, alpha)

    def _overflow(self, call: Call, kind: str, first: int, second: int, alpha: int) -> Call:
        args = (self._add(String(kind)), first, second, self._add(Int(alpha)), self._add(String(call.name)))
        out = self._add(TensorSpec(DType.INT32, (CHECK_FLAGS,), DType.INT32))
        return Call(OVERFLOW, args, (out,), call.origin)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _has_64_bits(self, value_id: int) -> bool:
        """Return whether an integer tensor has, or may have, 64 bits in the model."""
        if value_id in self.declared:
            return self.graph.tensor(value_id).host_dtype is DType.INT64
        return value_id not in self.narrow

    def _of_32_bits(self, call: Call) -> bool:
        """Return whether a call copies its operands, which have 32 bits in the model too. Scalars are ignored."""
        integers = [a for a in self.graph.flatten(call.args) if self._integer(a) and self.graph.tensor(a).dims]
        return bool(integers) and not facts_of(call).converts and not any(map(self._has_64_bits, integers))


def _declared(graph: Graph) -> frozenset[int]:
    """Return the values whose dtype the program declares: all except those inside a delegate, where 64 bits are 32."""
    sites_of: dict[int, set[tuple[int, int | None]]] = {}
    for call in graph.calls:
        place = (call.origin.instruction, call.origin.delegate)
        for value_id in (*graph.flatten(call.args), *call.outs):
            sites_of.setdefault(value_id, set()).add(place)
    inside = {i for i, sites in sites_of.items() if len(sites) == 1 and next(iter(sites))[1] is not None}
    return frozenset(range(len(graph.values))) - inside | frozenset((*graph.inputs, *graph.outputs))
