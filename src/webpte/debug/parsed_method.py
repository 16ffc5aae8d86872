"""Parse the methods of a file, also of one that cannot run. Needs no GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ..container import (
    DelegateCall,
    KernelCall,
    MappedFile,
    MethodPlan,
    MoveCall,
    ProgramFile,
    TensorFile,
    TensorValue,
    parse_program,
    parse_tensors,
)
from ..errors import DataError, Error, ShapeError, UnsupportedError
from ..fusion import PASSES
from ..graph import Bool, Double, Graph, Int, String, build_graph
from ..lowering import mutated_positions
from ..plan import LoweredCall, Plan, Planner, make_planner
from ..runtime import Program, load_program
from ..runtime.kernels import CpuKernels
from ..runtime.loading import data_beside
from ..runtime.program import find_data
from ..typing import Dims, PathLike
from ..wgsl import Caps

CAPS = Caps(adapter="a device with WebGPU's default limits")


@dataclass(frozen=True)
class ParsedMethod:
    """A method of a file. If it cannot be planned, `problem` has the reason."""

    plan: MethodPlan  # of the file
    graph: Graph  # delegates inlined, without those of other backends
    planner: Planner | None
    problem: str | None
    returns: list[Any] | None  # the outputs of a method without calls and inputs

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def planned_graph(self) -> Graph:
        """Return the graph of the plan, or that of the file if there is no plan."""
        return self.graph if self.planner is None else self.planner.plan.graph


@contextmanager
def parse_methods(path: PathLike, data: Iterable[PathLike] = ()) -> Iterator[tuple[ProgramFile, list[ParsedMethod]]]:
    """Yield the file and its methods, which stay open as long as the context."""
    files = list(data)
    with ExitStack() as stack:
        try:
            program = stack.enter_context(load_program(path, files))
        except (UnsupportedError, DataError):
            yield _parse_partly(path, files, stack)
        else:
            yield program.file, [_parsed(program, plan) for plan in program.file.methods]


def _parsed(program: Program, plan: MethodPlan) -> ParsedMethod:
    graph = program.graph(plan.name)
    planner, problem = None, None
    try:
        planner = program.planner(plan.name, CAPS)
    except Error as error:
        problem = str(error)
    constant = not graph.steps and not graph.inputs
    returns = [_as_python(value) for value in program.method(plan.name).run(())] if constant else None
    return ParsedMethod(plan, graph, planner, problem, returns)


def _as_python(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _parse_partly(path: PathLike, data: Sequence[PathLike], stack: ExitStack) -> tuple[ProgramFile, list[ParsedMethod]]:
    """Parse a program that cannot be loaded, because of delegates of other backends or missing constants."""
    mapped = [stack.enter_context(MappedFile(one)) for one in (path, *data)]
    file, tensors = parse_program(mapped[0]), [parse_tensors(one) for one in mapped[1:]]
    return file, [_parsed_partly(plan, file, tensors) for plan in file.methods]


def _parsed_partly(plan: MethodPlan, file: ProgramFile, tensors: Sequence[TensorFile]) -> ParsedMethod:
    others = [other for other in file.methods if other is not plan]

    def build(**options: Any) -> Graph:
        return build_graph(plan, lambda key: find_data(key, file, tensors), mutated_positions, others=others, **options)

    try:
        graph = build()
        planner = make_planner(graph, CAPS, CpuKernels(), False, tuple(PASSES), {})
    except Error as error:
        beside = data_advice(file.path, error.keys) if isinstance(error, DataError) else ""
        return ParsedMethod(plan, build(problems=[]), None, f"{error}{beside and ' '}{beside}", None)
    literals = [graph.values[i] for i in graph.outputs]
    constant = not graph.steps and not graph.inputs
    returns = [v.value for v in literals if isinstance(v, (Int, Double, Bool, String))] if constant else None
    return ParsedMethod(plan, graph, planner, None, returns)


def data_advice(path: PathLike, keys: Collection[str]) -> str:
    """Return the options to add if files beside a program have the missing constants."""
    files = data_beside(path, keys)
    return f"A file beside it has them: add {' '.join(f'--data {one}' for one in files)}." if files else ""


def delegate_io(plan: MethodPlan) -> dict[int, tuple[list[int], list[int]]]:
    """Return the inputs and outputs of each delegate, at its first call."""
    available = {*plan.inputs, *(i for i, value in enumerate(plan.values) if _has_data(value))}
    borders: dict[int, tuple[list[int], list[int]]] = {}
    for instruction in plan.instructions:
        if isinstance(instruction, DelegateCall):
            args = list(instruction.args)
            count = max((n + 1 for n, value_id in enumerate(args) if value_id in available), default=0)
            borders.setdefault(instruction.delegate, (args[:count], args[count:]))
            available.update(args)
        elif isinstance(instruction, KernelCall):
            available.update(instruction.args)
        elif isinstance(instruction, MoveCall):
            available.add(instruction.target)
    return borders


def _has_data(value: object) -> bool:
    return isinstance(value, TensorValue) and (value.data is not None or value.external_name is not None)


def lowered_calls(planner: Planner) -> dict[int, LoweredCall]:
    """Return step -> lowered call, with every input at its bound."""
    schedules = planner.lower({})
    return {step: call for s in schedules for step, call in zip(s.segment.steps, s.calls, strict=True)}


def dynamic_dims(planner: Planner) -> dict[int, tuple[bool, ...]]:
    """Return tensor -> which of its dims may be smaller than the bound, found by lowering for smaller inputs.

    Outputs of CPU kernels are taken at their bound: only a run would show their shape.
    """
    plan = planner.plan
    dynamic = {v: list(flags) for v, flags in plan.dynamic_dims.items()}
    signature = {*plan.graph.inputs, *plan.graph.outputs}
    for inputs in _smaller_inputs(plan):
        try:
            schedules = planner.lower(inputs)
        except ShapeError:  # below the smallest shape that the program was exported for
            continue
        for value_id, dims in ((v, d) for s in schedules for v, d in s.dims.items()):
            if value_id >= len(plan.graph.values) or value_id in signature:  # scratch, or as the plan has it
                continue
            bound = plan.graph.tensor(value_id).dims
            before = dynamic.get(value_id, [False] * len(bound))
            dynamic[value_id] = [b or live != limit for b, live, limit in zip(before, dims, bound, strict=True)]
    return {v: tuple(flags) for v, flags in dynamic.items()}


def _smaller_inputs(plan: Plan) -> Iterator[dict[int, Dims]]:
    """Yield input shapes to try. Near the bound a pooled dim may not change; tiny shapes may be rejected."""
    bounds = plan.input_bounds
    if not any(may for v in bounds for may in plan.dynamic_dims[v]):
        return
    for smaller in (lambda b: b - 1, lambda b: b // 2, lambda b: 2, lambda b: 1):
        yield {
            v: tuple(
                min(b, max(1, smaller(b))) if may else b for b, may in zip(bound, plan.dynamic_dims[v], strict=True)
            )
            for v, bound in bounds.items()
        }
