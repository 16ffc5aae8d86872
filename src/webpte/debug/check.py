"""Find everything that prevents a program from running on a device. Needs no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, TypedDict

from ..container import MappedFile, MethodPlan, ProgramFile, TensorFile, parse_program, parse_tensors
from ..deferred import open_remote_files
from ..device import MEMORY_KINDS, adapter_caps, allocated_bytes, constant_key, memory_limit, memory_needs
from ..errors import DeviceError, Error, InputError, Problem, ProblemKind
from ..fusion import PASSES, widen_halves
from ..graph import Call, Graph, TensorSpec, build_graph, keep_out
from ..lowering import mutated_positions
from ..plan import Plan, advice, draft, unsupported, wrong
from ..runtime.kernels import CpuKernels
from ..runtime.program import find_data
from ..sources import is_remote
from ..typing import PathLike
from ..wgsl import BROWSER_LIMITS, Caps
from .parsed_method import data_advice

__all__ = ["MEMORY_KINDS", "check_file", "device_caps"]

BROWSER = Caps(adapter="WebGPU's default limits, which every browser grants")
MAX_REJECTED_CALLS = 50  # of one method, before the search ends


class ProblemReport(TypedDict):
    """One thing that keeps a program from running."""

    method: Annotated[str, "empty for the program as a whole"]
    kind: ProblemKind
    subject: Annotated[str, "the op, constant or value"]
    detail: Annotated[str, "what is wrong with it"]
    where: Annotated[list[str], "the calls or values concerned"]
    remedy: Annotated[str, "empty if none is known"]
    code: Annotated[str, "the reason that an error about it would append to its code; may be empty"]


class ProgramMemory(TypedDict):
    """Bytes on the device with every method loaded."""

    constant: int
    state: int
    activation: int
    readback: int
    parameters: int
    uploads: int
    total: int
    offered: Annotated[int | None, "bytes that are free; null if WebGPU does not report it"]


class LimitCheck(TypedDict):
    """What a plan needs of a limit."""

    name: str
    needs: int
    offers: int


class MethodCheck(TypedDict):
    """One method. Without a plan, its numbers are None."""

    name: str
    problems: int
    calls: int | None
    submits: Annotated[int | None, "null without a plan"]
    cpu_calls: Annotated[dict[str, int], "calls on the CPU by name"]
    memory: Annotated[dict[str, int] | None, "bytes by kind: constant, state, activation"]
    limits: Annotated[list[LimitCheck], "what the plan needs of the device, and what the device offers"]


class CheckReport(TypedDict):
    """Everything that prevents a program from running."""

    file: str
    bytes: int
    device: Annotated[str, "what it was checked for"]
    ok: Annotated[bool, "whether there are no problems"]
    problems: list[ProblemReport]
    remedies: Annotated[list[str], "each once"]
    memory: Annotated[ProgramMemory, "bytes on the device with every method loaded"]
    methods: list[MethodCheck]


def check_file(path: PathLike, data: Iterable[PathLike] = (), caps: Caps = BROWSER) -> CheckReport:
    """Return problems, memory and limits of every method of a program, on a device with these capabilities.

    Of a program on a hub, only the ranges of its files that are read are downloaded: no weights.
    """
    with ExitStack() as stack:
        files = list(stack.enter_context(open_remote_files(path))) if is_remote(path) else []
        files += [stack.enter_context(MappedFile(one)) for one in (*([] if files else [path]), *data)]
        program = parse_program(files[0])
        tensors = [parse_tensors(file) for file in files[1:]]
        methods = [_Method(plan, program, tensors, caps) for plan in program.methods]
        memory = _memory([method.plan for method in methods if method.plan is not None], caps)
    problems = [(method.name, problem) for method in methods for problem in method.problems]
    problems += [("", problem) for problem in _too_much(memory, caps)]
    return {
        "file": files[0].path,
        "bytes": files[0].size,
        "device": caps.adapter,
        "ok": not problems,
        "problems": [_problem(name, problem) for name, problem in problems],
        "remedies": [*advice([problem for _, problem in problems], CpuKernels()), *_beside(path, problems)],
        "memory": memory,
        "methods": [method.report(caps) for method in methods],
    }


def _problem(method: str, problem: Problem) -> ProblemReport:
    return {
        "method": method,
        "kind": problem.kind,
        "subject": problem.subject,
        "detail": problem.detail,
        "where": list(problem.where),
        "remedy": problem.remedy,
        "code": problem.code,
    }


def _beside(path: PathLike, problems: Sequence[tuple[str, Problem]]) -> list[str]:
    keys = [problem.subject.removeprefix("key ") for _, problem in problems if problem.kind == "constant"]
    return [hint for hint in (data_advice(path, keys),) if hint] if keys else []


def device_caps(adapter: bool = False, limits: str | None = None) -> Caps:
    """Return the capabilities to check against. `limits` is "browser" or "NAME=NUMBER,..."; None is this machine's.

    Without an adapter, a browser's limits are used, or a DeviceError is raised if `adapter` is set.
    """
    if limits == "browser":
        return BROWSER
    if limits is not None:
        named = _parse_limits(limits)
        return replace(BROWSER, adapter=f"a device with {limits}").within(named)
    try:
        return adapter_caps()
    except DeviceError:
        if adapter:
            raise
        return replace(BROWSER, adapter=f"{BROWSER.adapter} (this machine has no adapter)")


def _parse_limits(text: str) -> dict[str, int]:
    named: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if name not in BROWSER_LIMITS or not number.isdecimal():
            raise InputError(
                argument="limits",
                expected="browser or NAME=NUMBER,...",
                got=repr(part),
                hint=f"The names are {', '.join(BROWSER_LIMITS)}.",
                code="invalid_limits",
            )
        named[name] = int(number)
    return named


class _Method:
    """A method and its problems."""

    def __init__(self, file_plan: MethodPlan, program: ProgramFile, tensors: Sequence[TensorFile], caps: Caps) -> None:
        self.name = file_plan.name
        self.problems: list[Problem] = []
        self.graph: Graph | None = None
        self.plan: Plan | None = None
        kernels = CpuKernels()
        try:
            data_problems: list[Problem] = []
            others = [other for other in program.methods if other is not file_plan]
            graph = build_graph(
                file_plan, lambda key: find_data(key, program, tensors), mutated_positions, data_problems, others
            )
            self.graph = graph if "shader-f16" in caps.features else widen_halves(graph)
            self.problems += [_with_readers(problem, self.graph) for problem in data_problems]
            self.problems += unsupported(self.graph, kernels)
            # The outputs of another backend's delegate are unknown, and with them all later calls.
            if any(problem.kind == "backend" for problem in data_problems):
                return
            mistakes = wrong(self.graph)
            self.problems += mistakes
            if not mistakes:
                self.plan = self._planned(self.graph, caps)
        except Error as error:
            self.problems.append(Problem("graph", self.name, f"cannot be planned: {error}"))

    def _planned(self, graph: Graph, caps: Caps) -> Plan:
        """Return a plan in which a stand-in CPU runs the calls that cannot be lowered."""
        if not self.problems:
            try:
                planner, exceeding = draft(graph, caps, CpuKernels(), passes=tuple(PASSES))
                self.problems += exceeding
                return planner.plan
            except Error as error:
                if error.step is None:
                    raise
        for _ in range(MAX_REJECTED_CALLS):
            try:
                planner, exceeding = draft(graph, caps, _AnyKernel(), fallback=True)
                self.problems += exceeding
                return planner.plan
            except Error as error:
                if error.step is None:
                    raise
                graph = self._leave_out(graph, error.step, error)
        raise InputError(f"{MAX_REJECTED_CALLS} calls cannot be lowered, and there may be more", code="too_many")

    def _leave_out(self, graph: Graph, index: int, error: Error) -> Graph:
        call = graph.steps[index]
        assert isinstance(call, Call)
        detail = str(error).removeprefix(f"{call.name} ({call.origin})").removeprefix(": ").strip()
        remedy = "" if call.kernel else keep_out([call.name])
        self.problems.append(Problem("graph", call.name, detail, (str(call.origin),), remedy))
        steps = list(graph.steps)
        steps[index] = replace(call, name=f"{call.name} (refused)")  # a name that only `_AnyKernel` has
        return replace(graph, steps=tuple(steps))

    def report(self, caps: Caps) -> MethodCheck:
        """Return the report of the method. Without a plan, its numbers are None."""
        report: MethodCheck = {
            "name": self.name,
            "problems": len(self.problems),
            "calls": len(self.graph.calls) if self.graph is not None else None,
            "submits": None,
            "cpu_calls": {},
            "memory": None,
            "limits": [],
        }
        if self.plan is not None and self.plan.graph.steps:
            report["submits"] = len(self.plan.flow.segments)
            refused = {problem.subject for problem in self.problems}
            report["cpu_calls"] = {n: count for n, count in self.plan.cpu_calls.items() if n not in refused}
            report["memory"] = self.plan.bytes_by_kind()
            report["limits"] = [
                {"name": name, "needs": needed, "offers": caps.limit(name)} for name, needed in self.plan.limits.items()
            ]
        return report


class _AnyKernel:
    """A stand-in for a CPU that has a kernel for any name."""

    def __contains__(self, name: object) -> bool:
        return True


def _with_readers(problem: Problem, graph: Graph) -> Problem:
    """Return a constant's problem with the calls that read it."""
    if problem.kind != "constant":
        return problem
    key = problem.subject.removeprefix("key ")
    holders = {v for v, spec in enumerate(graph.values) if isinstance(spec, TensorSpec) and _name(spec) == key}
    readers = [f"{c.name} ({c.origin})" for c in graph.calls if holders.intersection(graph.flatten(c.args))]
    return problem._replace(where=(*problem.where, *dict.fromkeys(readers)))


def _name(spec: TensorSpec) -> str | None:
    return spec.constant.name if spec.constant is not None else None


def _memory(plans: Iterable[Plan], caps: Caps) -> ProgramMemory:
    """Return the bytes on the device with every method loaded. Methods share only constants."""
    present: set[object] = set()
    totals: Counter[str] = Counter()
    for plan in plans:
        if not plan.flow.segments:
            continue
        for kind, nbytes in memory_needs(plan, present).kinds.items():
            totals[kind] = max(totals[kind], nbytes) if kind == "uploads" else totals[kind] + nbytes
        present.update(constant_key(buffer) for buffer in plan.buffers if buffer.kind == "constant")
    free = memory_limit("CPU", allocated_bytes()).nbytes if caps.kind == "cpu" else None
    return {
        "constant": totals["constant"],
        "state": totals["state"],
        "activation": totals["activation"],
        "readback": totals["readback"],
        "parameters": totals["parameters"],
        "uploads": totals["uploads"],
        "total": totals.total(),
        "offered": free,
    }


def _too_much(memory: ProgramMemory, caps: Caps) -> list[Problem]:
    if memory["offered"] is None or memory["total"] <= memory["offered"]:
        return []
    detail = f"needs {memory['total']} bytes of memory; {caps.adapter} has {memory['offered']} free"
    return [Problem("memory", "the program", detail, (), "Quantize the weights, or export with smaller bounds.")]
