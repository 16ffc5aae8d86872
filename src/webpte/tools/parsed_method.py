"""The methods of a file, as far as they can be read: also of one that cannot run. Needs no GPU."""

from __future__ import annotations

import os
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
from ..wgsl import Caps

PathLike = str | os.PathLike[str]
CAPS = Caps(adapter="a device with WebGPU's default limits")


@dataclass(frozen=True)
class ParsedMethod:
    """One method. Without a plan, `problem` says why."""

    plan: MethodPlan  # as the file has it
    graph: Graph  # delegates inlined; those of other backends are left out
    planner: Planner | None
    problem: str | None
    returns: list[Any] | None  # of a method without calls and inputs: what it always returns

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def shown(self) -> Graph:
        """The graph as it runs, if it does."""
        return self.graph if self.planner is None else self.planner.plan.graph


@contextmanager
def parse_methods(path: PathLike, data: Iterable[PathLike] = ()) -> Iterator[tuple[ProgramFile, list[ParsedMethod]]]:
    """The file and its methods, open as long as the context is."""
    files = list(data)
    with ExitStack() as stack:
        try:
            program = stack.enter_context(load_program(path, files))
        except (UnsupportedError, DataError):
            yield _partly(path, files, stack)
        else:
            yield program.file, [_look(program, plan) for plan in program.file.methods]


def _look(program: Program, plan: MethodPlan) -> ParsedMethod:
    graph = program.graph(plan.name)
    planner, problem = None, None
    try:
        planner = program.planner(plan.name, CAPS)
    except Error as error:
        problem = str(error)
    constant = not graph.steps and not graph.inputs
    returns = [_plain(value) for value in program.method(plan.name).run(())] if constant else None
    return ParsedMethod(plan, graph, planner, problem, returns)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _partly(path: PathLike, data: Sequence[PathLike], stack: ExitStack) -> tuple[ProgramFile, list[ParsedMethod]]:
    """What can be told of a program that cannot be loaded: some of its delegates are others', or constants are away."""
    opened = [stack.enter_context(MappedFile(one)) for one in (path, *data)]
    file, tensors = parse_program(opened[0]), [parse_tensors(one) for one in opened[1:]]
    return file, [_look_partly(plan, file, tensors) for plan in file.methods]


def _look_partly(plan: MethodPlan, file: ProgramFile, tensors: Sequence[TensorFile]) -> ParsedMethod:
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
    """What to add to a command line, where files beside a program have constants that it lacks."""
    found = data_beside(path, keys)
    return f"Beside it is what has them: add {' '.join(f'--data {one}' for one in found)}." if found else ""


def delegate_borders(plan: MethodPlan) -> dict[int, tuple[list[int], list[int]]]:
    """By delegate: the values that enter it and those that leave it, where it is called first. Inputs come first."""
    there = {*plan.inputs, *(i for i, value in enumerate(plan.values) if _has_data(value))}
    found: dict[int, tuple[list[int], list[int]]] = {}
    for instruction in plan.instructions:
        if isinstance(instruction, DelegateCall):
            args = list(instruction.args)
            known = max((n + 1 for n, value_id in enumerate(args) if value_id in there), default=0)
            found.setdefault(instruction.delegate, (args[:known], args[known:]))
            there.update(args)
        elif isinstance(instruction, KernelCall):
            there.update(instruction.args)
        elif isinstance(instruction, MoveCall):
            there.add(instruction.target)
    return found


def _has_data(value: object) -> bool:
    return isinstance(value, TensorValue) and (value.data is not None or value.external_name is not None)


Dims = tuple[int, ...]


def lowered_calls(planner: Planner) -> dict[int, LoweredCall]:
    """Step -> what it does on the device when every input is at its bound."""
    schedules = planner.lower({})
    return {step: call for s in schedules for step, call in zip(s.segment.steps, s.calls, strict=True)}


def dynamic_dims(planner: Planner) -> dict[int, tuple[bool, ...]]:
    """Tensor -> which of its dims may be smaller than the bound. Found by lowering for smaller inputs.

    What a CPU kernel makes is taken at its bound: only running it would tell.
    """
    plan = planner.plan
    found = {v: list(flags) for v, flags in plan.dynamic_dims.items()}
    for inputs in _smaller_inputs(plan):
        try:
            schedules = planner.lower(inputs)
        except ShapeError:  # below the smallest shape that the program was exported for
            continue
        for value_id, dims in ((v, d) for s in schedules for v, d in s.dims.items()):
            if value_id >= len(plan.graph.values):  # scratch
                continue
            bound = plan.graph.tensor(value_id).dims
            before = found.get(value_id, [False] * len(bound))
            found[value_id] = [b or live != most for b, live, most in zip(before, dims, bound, strict=True)]
    return {v: tuple(flags) for v, flags in found.items()}


def _smaller_inputs(plan: Plan) -> Iterator[dict[int, Dims]]:
    """Input shapes to try. Close to the bound a dim that was pooled may not move; tiny ones may be refused."""
    bounds = {v: plan.graph.tensor(v).dims for v in plan.dynamic_dims}
    if not any(may for flags in plan.dynamic_dims.values() for may in flags):
        return
    for smaller in (lambda b: b - 1, lambda b: b // 2, lambda b: 2, lambda b: 1):
        yield {
            v: tuple(
                min(b, max(1, smaller(b))) if may else b for b, may in zip(bound, plan.dynamic_dims[v], strict=True)
            )
            for v, bound in bounds.items()
        }
