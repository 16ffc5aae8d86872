"""From an execution plan and its delegates to one graph.

Calls of delegates are inlined between the kernel calls. EValue ids keep their numbers; private values of delegates
follow them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..budgets import spend
from ..container import (
    BoolListValue,
    BoolValue,
    Delegate,
    DelegateCall,
    DoubleListValue,
    DoubleValue,
    DType,
    EValue,
    FreeCall,
    IntListValue,
    IntValue,
    JumpFalseCall,
    KernelCall,
    MappedFile,
    MethodPlan,
    MoveCall,
    NullValue,
    OptionalTensorListValue,
    Span,
    StringValue,
    TensorListValue,
    TensorValue,
    VkGraph,
    XnnGraph,
    parse_vulkan,
    parse_xnnpack,
)
from ..errors import DataError, Error, GraphError, Problem, UnsupportedError, common_code, remedies
from ..text import plural
from .delegate import inline, read_delegates, refuse_own
from .elided_views import START, ElidedView, elided_views, to_row_major
from .graph import (
    MAX_NAME_CHARS,
    Bool,
    BoolList,
    Call,
    Constant,
    DelegateInfo,
    Double,
    DoubleList,
    Graph,
    Int,
    IntList,
    Jump,
    Mutates,
    Null,
    Origin,
    Step,
    String,
    SymBool,
    SymFloat,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
    device_dtype,
    flattened,
    numel,
)
from .mutable_buffers import split_buffers
from .names import COPY, COPY_INDEX, EMPTY, RETURN_ONLY, VIEW
from .xnnpack import XNN_BACKEND, XnnDelegate, inline_xnnpack, match_xnnpack_io

BACKEND = "VulkanBackend"
REPARTITION = (
    "Re-export with VulkanPartitioner, WebGPUPartitioner or XnnpackPartitioner: "
    "webpte.export.lower(model, inputs, path='model.pte') does, "
    "and so does to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[VulkanPartitioner()])."
)
PASS_DATA = (
    "If constants were exported to .ptd files, pass those: load(path, data=['weights.ptd']), or --data in a command."
)
PARSERS: dict[str, Callable[[Span], VkGraph | XnnGraph]] = {BACKEND: parse_vulkan, XNN_BACKEND: parse_xnnpack}
BACKENDS = tuple(PARSERS)
# What other delegates are for, by the id that ExecuTorch writes.
OTHER_BACKENDS = {
    "CoreMLBackend": "Core ML, on Apple devices",
    "CudaBackend": "CUDA, on NVIDIA GPUs",
    "EnnBackend": "Samsung Exynos NPUs",
    "EthosUBackend": "Arm Ethos-U NPUs",
    "MLXBackend": "MLX, on Apple devices",
    "MPSBackend": "Metal Performance Shaders, on Apple devices",
    "MetalBackend": "Metal, on Apple devices",
    "NeuropilotBackend": "MediaTek NPUs",
    "NeutronBackend": "NXP eIQ Neutron NPUs",
    "OpenvinoBackend": "OpenVINO, on Intel devices",
    "QnnBackend": "QNN, on Qualcomm devices",
    "TOSABackend": "TOSA, for Arm devices",
    "VgfBackend": "VGF, for Arm GPUs",
}
FIRST_SHARED_POOL = 2  # `MemoryPlanningPass(share_mutable_buffers=True)` puts them after the pools of one method


def build_graph(
    plan: MethodPlan,
    lookup: Callable[[str], Span | None],
    mutates: Mutates,
    problems: list[Problem] | None = None,
    others: Sequence[MethodPlan] = (),
) -> Graph:
    """Return the graph of one method. `lookup` resolves named data; all unknown keys are reported in one error.

    `others` are the program's further methods, with which it may share buffers.
    With `problems`, recoverable defects are added there and not raised: such a graph can be inspected, not run.
    """
    builder = _Builder(plan, lookup, mutates)
    builder.add_starts()
    builder.add_views(START)
    starts = []  # instruction -> its first step; one past the end is a valid jump target
    for index, instruction in enumerate(plan.instructions):
        starts.append(len(builder.steps))
        builder.add(Origin(index), instruction)
        builder.add_views(index)
    starts.append(len(builder.steps))
    builder.problems += split_buffers(builder.values, builder.steps)
    if problems is not None:
        problems += builder.problems
    elif builder.problems:
        raise _refusal(plan.name, builder.problems)
    steps = tuple(replace(s, target=starts[s.target]) if isinstance(s, Jump) else s for s in builder.steps)
    builder.mark_buffers(others)
    infos = tuple(builder.infos[index] for index in sorted(builder.infos))
    return Graph(
        name=plan.name,
        values=tuple(builder.values),
        steps=steps,
        inputs=plan.inputs,
        outputs=plan.outputs,
        delegates=infos,
        names=_names(plan),
    )


class _Builder:
    def __init__(self, plan: MethodPlan, lookup: Callable[[str], Span | None], mutates: Mutates) -> None:
        self.plan = plan
        self.lookup = lookup
        self.mutates = mutates
        self.steps: list[Step] = []
        self.problems: list[Problem] = []
        self.infos: dict[int, DelegateInfo] = {}
        used = [i.delegate for i in plan.instructions if isinstance(i, DelegateCall)]
        self._blobs: dict[Span, VkGraph | XnnGraph] = {}
        parsed = {index: graph for index in sorted(set(used)) if (graph := self._parse(index)) is not None}
        self._refuse_expansion([parsed[index] for index in used if index in parsed])
        vulkan = {index: graph for index, graph in parsed.items() if isinstance(graph, VkGraph)}
        self.delegates, problems = read_delegates(plan, vulkan, mutates)
        self.problems += problems
        self.xnnpack: dict[int, XnnDelegate] = {}
        for index, call in enumerate(plan.instructions):
            if isinstance(call, DelegateCall) and isinstance(graph := parsed.get(call.delegate), XnnGraph):
                self.xnnpack[index] = match_xnnpack_io(plan.values, graph, call.args, Origin(index, call.delegate))
        writes = [self._written(index) for index in range(len(plan.instructions))]
        live = {*plan.inputs, *(value_id for written in writes for value_id in written)}
        null = len(plan.values)
        self.values: list[Value] = [self._value(i, v, i in live, null) for i, v in enumerate(plan.values)]
        self.values.append(Null())
        reads = [self._members(_operands(instruction)) for instruction in plan.instructions]
        self.views: dict[int, list[ElidedView]] = {}
        for view in elided_views(plan, reads, [self._members(written) for written in writes]):
            self.views.setdefault(view.after, []).append(view)
        self._widen_bf16([*reads, *map(self._members, writes)])

    def _value(self, index: int, value: EValue, live: bool, null: int) -> Value:
        match value:
            case TensorValue():
                return self._tensor(index, value)
            case IntValue():
                return SymInt() if live else Int(value.value)
            case BoolValue():
                return SymBool() if live else Bool(value.value)
            case DoubleValue():
                return SymFloat() if live else Double(value.value)
            case StringValue():
                return String(value.value)
            case NullValue():
                return Null()
            case IntListValue() | TensorListValue():
                return ValueList(value.ids)
            case OptionalTensorListValue():
                return ValueList(tuple(null if item is None else item for item in value.ids))
            case DoubleListValue():
                return DoubleList(value.values)
            case BoolListValue():
                return BoolList(value.values)
        raise GraphError(f"{self.plan.name}: value {index} has the unknown kind {type(value).__name__}")

    def _tensor(self, index: int, value: TensorValue) -> TensorSpec:
        needed = numel(value.sizes) * value.dtype.itemsize
        span, name = value.data, f"value {index}"
        if value.external_name is not None:
            name = value.external_name
            span = self._named(name, f"value {index}", needed)
        constant = None
        if span is not None:
            constant = Constant(to_row_major(span.sub(0, needed), value), value.dtype, name)
        return TensorSpec(
            device_dtype(value.dtype), value.sizes, value.dtype, value.dynamic, constant, mutable=value.mutable
        )

    def _widen_bf16(self, used: Sequence[Sequence[int]]) -> None:
        """Let values of bf16 be f32 on the device, if only callers and XNNPACK delegates use them: those round.

        `used` lists the values that each instruction reads, then those that each writes.
        """
        count = len(self.plan.instructions)
        others = {value_id for index, ids in enumerate(used) if index % count not in self.xnnpack for value_id in ids}
        others |= {value_id for views in self.views.values() for view in views for value_id in (view.base, view.value)}
        arguments = {argument.outer for d in self.xnnpack.values() for argument in (*d.inputs, *d.outputs)}
        for value_id in arguments - others:
            spec = self.values[value_id]
            if isinstance(spec, TensorSpec) and spec.dtype is DType.BFLOAT16 and not spec.stored:
                self.values[value_id] = replace(spec, dtype=DType.FLOAT32)

    def mark_buffers(self, others: Sequence[MethodPlan]) -> None:
        """Mark tensors that are read before they are written as mutable buffers, which are initially zero."""
        writers = [step for step in self.steps if isinstance(step, Call)]
        written = {out for call in writers for out in call.outs}
        written |= {call.args[p] for call in writers if call.kernel for p in self.mutates(call)}
        defined = set(self.plan.inputs)
        for call in writers:
            read = flattened(call.args, self.values)
            for value_id in (*read, *call.outs):
                value = self.values[value_id]
                early = value_id in read and value_id in written and value_id not in defined
                if early and isinstance(value, TensorSpec) and value.constant is None:
                    self.values[value_id] = replace(value, mutable=True)
                defined.add(value_id)
        self._mark_shared(defined - written - set(self.plan.inputs), others)

    def _mark_shared(self, unwritten: set[int], others: Sequence[MethodPlan]) -> None:
        """Mark buffers that methods share by their memory pool. A method may only read such a buffer."""
        allocations = {value.place for plan in others for value in plan.values if isinstance(value, TensorValue)}
        for value_id, value in enumerate(self.plan.values):
            place = value.place if isinstance(value, TensorValue) else None
            if place not in allocations or place is None or place[0] < FIRST_SHARED_POOL:
                continue
            spec = self.values[value_id]
            assert isinstance(spec, TensorSpec)
            if spec.mutable or (value_id in unwritten and spec.constant is None):
                self.values[value_id] = replace(spec, mutable=True, shared=place)

    def _named(self, key: str, where: str, needed: int) -> Span:
        """Return the data of a key. If there is too little, report it and return a placeholder that cannot be read."""
        span = self.lookup(key)
        if span is not None and span.size >= needed:
            return span
        detail = "has no data" if span is None else f"has {span.size} bytes of data; its shape needs {needed}"
        self.problems.append(Problem("constant", f"key {key}", detail, (where,), PASS_DATA, "missing_constant"))
        return Span(MappedFile.from_bytes(f"missing {key}", _zeros(needed, where)), 0, needed)

    def add_starts(self) -> None:
        """Add the initial values of loops: integers that a call reads before any writes them, and empty results."""
        written = set(self.plan.inputs)
        for index, instruction in enumerate(self.plan.instructions):
            results = set(self._written(index))
            operands = instruction.args[:-1] if isinstance(instruction, KernelCall) else _operands(instruction)
            if isinstance(instruction, DelegateCall):
                operands = tuple(value_id for value_id in operands if value_id not in results)
            for value_id in self._members(operands):
                start = self.plan.values[value_id]
                live = isinstance(self.values[value_id], SymInt) and value_id not in written
                if live and isinstance(start, IntValue):
                    self.values.append(Int(start.value))
                    self.steps.append(Call(COPY, (len(self.values) - 1,), (value_id,), Origin(index)))
                    written.add(value_id)
            if isinstance(instruction, KernelCall) and instruction.op == COPY_INDEX and not results & written:
                self._start_empty(instruction.args[0], Origin(index))
            written.update(self._members(results))

    def _start_empty(self, target: int, origin: Origin) -> None:
        self.values += [IntList((0, *self.tensor_dims(target)[1:])), Null()]
        args = (len(self.values) - 2, len(self.values) - 1)
        self.steps.append(Call(EMPTY, args, (target,), origin, kernel=True, on_host=True))

    def add_views(self, after: int) -> None:
        """Add the elided views of what this instruction has written."""
        for view in self.views.get(after, []):
            self.values.append(IntList(self.tensor_dims(view.value)))
            origin = Origin(max(after, 0))
            self.steps.append(Call(VIEW, (view.base, len(self.values) - 1), (view.value,), origin, kernel=True))

    def tensor_dims(self, value_id: int) -> tuple[int, ...]:
        value = self.values[value_id]
        assert isinstance(value, TensorSpec)
        return value.dims

    def _members(self, ids: Iterable[int]) -> list[int]:
        """Return the program's values among these and in the lists among them."""
        return [member for member in flattened(ids, self.values) if member < len(self.plan.values)]

    def add(self, origin: Origin, instruction: object) -> None:
        match instruction:
            case KernelCall():
                self.steps.append(self._kernel(instruction, origin))
            case DelegateCall():
                self._delegate(instruction, replace(origin, delegate=instruction.delegate))
            case MoveCall(source, target):
                self.steps.append(Call(COPY, (source,), (target,), origin))
            case JumpFalseCall(condition, target):
                self.steps.append(Jump(condition, target, origin))
            case FreeCall():
                pass  # memory is shared by liveness: freeing early has no effect
            case _:
                raise GraphError(f"{self.plan.name}: {origin} has the unknown kind {type(instruction).__name__}")

    def _kernel(self, call: KernelCall, origin: Origin) -> Call:
        """Return a kernel call.

        Its arguments are inputs, outs, then the returned value again; primitives end with `out`.
        """
        refuse_own(call.op, origin)
        if not call.args:
            raise GraphError(f"{self.plan.name}: {origin} ({call.op}) has no arguments")
        *rest, last = call.args
        returned = self.values[last]
        outs: tuple[int, ...]
        if call.op == COPY_INDEX:
            inputs, outs = list(call.args), call.args[:1]
        elif call.op.startswith(RETURN_ONLY):
            inputs, outs = rest, (last,)
        elif isinstance(returned, ValueList):
            outs = returned.ids
            if rest and self.values[rest[-1]] == returned:  # the outputs are one list, as in split_copy
                rest = [*rest[:-1], *outs]
            inputs = rest[: len(rest) - len(outs)]
            if tuple(rest[len(inputs) :]) != outs:
                raise GraphError(
                    f"{self.plan.name}: {origin} ({call.op}) returns {outs}, which are not among its arguments"
                )
        else:  # in-place calls such as copy_ name their output among the inputs only
            inputs, outs = (rest[:-1] if rest and rest[-1] == last else rest), (last,)
        return Call(call.op, tuple(inputs), outs, origin, kernel=True)

    def _parse(self, index: int) -> VkGraph | XnnGraph | None:
        delegate = self.plan.delegates[index]
        parse = PARSERS.get(delegate.backend)
        if parse is not None:
            if delegate.blob not in self._blobs:
                self._blobs[delegate.blob] = parse(delegate.blob)
            return self._blobs[delegate.blob]
        purpose = f" ({OTHER_BACKENDS[delegate.backend]})" if delegate.backend in OTHER_BACKENDS else ""
        detail = f"was made for {delegate.backend}{purpose}; webpte runs {' and '.join(PARSERS)} delegates"
        self.problems.append(
            Problem("backend", f"delegate {index}", detail, (f"delegate {index}",), REPARTITION, "unknown_backend")
        )
        return None

    def _refuse_expansion(self, inlined: list[VkGraph | XnnGraph]) -> None:
        """Check the number of calls and values, and of repeated delegates, before anything is inlined."""
        calls, first = [_count_calls(graph) for graph in inlined], {id(graph): graph for graph in inlined}.values()
        spend("calls", len(self.plan.instructions) + sum(calls), self.plan.name)
        spend("values", len(self.plan.values) + sum(len(graph.values) for graph in inlined), self.plan.name)
        spend("repeated calls", sum(calls) - sum(map(_count_calls, first)), self.plan.name)

    def _delegate(self, call: DelegateCall, origin: Origin) -> None:
        listed = self.plan.delegates[call.delegate]
        if (xnn := self.xnnpack.get(origin.instruction)) is not None:
            self.infos[call.delegate] = _info(call.delegate, listed, xnn.xnn)
            calls, unsupported = inline_xnnpack(self.values, xnn, self._named)
            self.steps.extend(calls)
            for missing in unsupported:
                self._add_problem(missing)
            return
        delegate = self.delegates.get(origin.instruction)
        if delegate is None:  # another backend's, or one whose border cannot be read: reported when it was found
            self.infos[call.delegate] = _info(call.delegate, listed, None)
            return
        self.infos[call.delegate] = _info(call.delegate, listed, delegate.vk)
        before = len(self.problems)
        calls, problem = inline(self.values, delegate, self._named, self.mutates)
        self.steps.extend(calls)
        if problem is not None and len(self.problems) == before:  # constants without data show nothing
            self.problems.append(problem)

    def _add_problem(self, problem: Problem) -> None:
        """Add a problem. If an earlier delegate has the same, only the place is added there."""
        for number, earlier in enumerate(self.problems):
            if earlier._replace(where=()) == problem._replace(where=()):
                self.problems[number] = earlier._replace(where=(*earlier.where, *problem.where))
                return
        self.problems.append(problem)

    def _written(self, index: int) -> Sequence[int]:
        """Return the ids that an instruction writes. Scalars that an instruction writes are live, others literals."""
        match self.plan.instructions[index]:
            case KernelCall() as call:
                return call.args[:1] if call.op == COPY_INDEX else call.args[-1:]
            case DelegateCall() if index in self.delegates:
                return [program_id for _, program_id in self.delegates[index].border.outputs]
            case DelegateCall() if index in self.xnnpack:
                return [argument.outer for argument in self.xnnpack[index].outputs]
            case DelegateCall() as call:
                return call.args
            case MoveCall(_, target):
                return (target,)
        return ()


def _zeros(nbytes: int, where: str) -> memoryview:
    """Return zeros that take no memory before they are read: a file may declare any size."""
    spend("tensor bytes", nbytes, where)
    try:
        return memoryview(mmap.mmap(-1, max(nbytes, 1)))
    except (OSError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: cannot substitute {nbytes} bytes of missing data: {error}") from error


def _operands(instruction: object) -> tuple[int, ...]:
    """Return the values that an instruction may read."""
    match instruction:
        case KernelCall() | DelegateCall():
            return instruction.args
        case MoveCall(source, _):
            return (source,)
        case JumpFalseCall(condition, _):
            return (condition,)
    return ()


def _refusal(name: str, problems: list[Problem]) -> Error:
    """Return one error for all problems. Unsupported features take precedence over missing data."""
    unsupported = [problem for problem in problems if problem.kind != "constant"]
    listed = "\n  ".join(map(_line, unsupported or problems))
    advice = " ".join(remedies(unsupported or problems))
    if unsupported:
        subjects = [problem.subject for problem in unsupported]
        return UnsupportedError(f"{name}: {listed}. {advice}", subjects, code=common_code(unsupported))
    keys = [problem.subject.removeprefix("key ") for problem in problems]
    return DataError(
        f"{name}: {plural(len(problems), 'constant')} without data:\n  {listed}\n{advice}",
        keys,
        code="missing_constant",
    )


def _line(problem: Problem) -> str:
    if problem.kind == "constant":
        return f"{problem.where[0]}: {problem}"
    if problem.code != "unsupported_node":
        return str(problem)
    more = f" and {len(problem.where) - 1} more" if len(problem.where) > 1 else ""
    return f"{problem.subject} ({problem.where[0]}{more}): {problem.detail}"


def _names(plan: MethodPlan) -> dict[int, str]:
    """Return the names of inputs and outputs. ExecuTorch writes those of buffers, `webpte.export` those of inputs."""
    named = {i: plan.values[i] for i in (*plan.inputs, *plan.outputs)}
    names = {i: value.name for i, value in named.items() if isinstance(value, TensorValue) and value.name}
    return {
        i: name for i, name in names.items() if len(name) <= MAX_NAME_CHARS and name.isprintable()
    }  # fit to be typed


def _count_calls(graph: VkGraph | XnnGraph) -> int:
    return len(graph.calls if isinstance(graph, VkGraph) else graph.nodes)


def _info(number: int, delegate: Delegate, graph: VkGraph | XnnGraph | None) -> DelegateInfo:
    """Return the summary of a delegate, without counts if it cannot be read."""
    options = tuple((key, value.hex()) for key, value in sorted(delegate.compile_specs.items()))
    counts = (0, 0, 0, 0)
    if graph is not None:
        constants = [c.length for c in graph.constants if c.span is not None or c.key is not None]
        counts = (_count_calls(graph), len(graph.values), len(constants), sum(constants))
    return DelegateInfo(number, delegate.backend, *counts, options, graph is not None)
