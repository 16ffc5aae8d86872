"""Which calls nothing here can run, and what to do about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from importlib.util import find_spec

from ..errors import Problem, UnsupportedError, common_code, remedies
from ..graph import Call, DType, Graph, fused_by_exporter, keep_out
from ..lowering import Op, find, gpu_op, refused_dtypes

INSTALL_TORCH = "Installing torch lets webpte use torch's own kernels for ops outside delegates."
OTHER_RELEASE = (
    "Export the model again with ExecuTorch 1.5, all of whose Vulkan ops run here, or, if a later release wrote the "
    "file, use a later webpte."
)
ON_CPU = 'Or let the CPU run them, slowly: load(path, fallback="cpu").'
NO_KERNEL = (
    "Neither webpte nor a kernel of torch's that a file may call serves it: export a module that does without, or "
    "register an op of your own (docs/writing-an-op.md)."
)


def unsupported(graph: Graph, cpu_kernels: Container[str], fallback: bool = False) -> list[Problem]:
    """A problem per op that has no kernel, and one per call whose operands' dtypes its op refuses."""
    missing: dict[tuple[bool, str], list[str]] = defaultdict(list)  # (outside delegates, name) -> the calls
    dtypes: list[Problem] = []
    for call in graph.calls:
        if gpu_op(call, graph) is not None or ((call.kernel or fallback) and call.name in cpu_kernels):
            continue
        if (op := find(call)) is not None:
            dtypes.append(_wrong_dtypes(op, call, graph))
        else:
            missing[call.kernel, call.name].append(str(call.origin))
    return [_without_kernel(name, outside, calls) for (outside, name), calls in sorted(missing.items())] + dtypes


def _without_kernel(name: str, outside: bool, calls: list[str]) -> Problem:
    count = f"(x{len(calls)})"
    if outside:
        return Problem(
            "kernel",
            name,
            f"{count}, outside delegates, has no CPU kernel",
            tuple(calls),
            by_torch(name),
            "no_cpu_kernel",
        )
    return Problem("op", name, f"{count} has no kernel", tuple(calls), " ".join(_without([name])), "unknown_op")


def _without(names: Sequence[str]) -> list[str]:
    """How to export without ops that have no kernel."""
    return [keep_out(names)] + [OTHER_RELEASE] * any(map(fused_by_exporter, names))


def by_torch(name: str) -> str:
    """What to do about an op outside delegates: where torch is installed, its kernel would have been found."""
    return INSTALL_TORCH if name.startswith("aten::") and find_spec("torch") is None else NO_KERNEL


def _wrong_dtypes(op: Op, call: Call, graph: Graph) -> Problem:
    detail = f"cannot take {', '.join(refused_dtypes(op, call, graph)) or 'these arguments'}"
    remedy = by_torch(call.name)
    if not call.kernel:
        taken = ", ".join(sorted(dtype.short for dtype in op.dtypes if dtype is not DType.WIDE_FLOAT16))
        remedy = f"Let the model give {call.name} one of {taken}. Or: {keep_out([call.name])}"
    return Problem("dtype", call.name, detail, (str(call.origin),), remedy, "dtype")


def advice(problems: Sequence[Problem], cpu_kernels: Container[str], fallback: bool = False) -> list[str]:
    """What to do about all of them, with one block list for all ops.

    The fallback is advised only if it is not in use and has a kernel for each call that it is about.
    """
    ops = sorted({problem.subject for problem in problems if problem.kind == "op"})
    lines = _without(ops) if ops else []
    lines += remedies([problem for problem in problems if problem.kind != "op"])
    inside = [p.subject for p in problems if p.kind in ("op", "dtype") and "::" not in p.subject]
    if inside and not fallback and all(name in cpu_kernels for name in inside):
        lines.append(ON_CPU)
    return lines


def refuse_unsupported(graph: Graph, cpu_kernels: Container[str], fallback: bool) -> None:
    """Raise one error that names all of them."""
    problems = unsupported(graph, cpu_kernels, fallback)
    if not problems:
        return
    lines = [f"{len(problems)} op{'s' * (len(problems) > 1)} of {graph.name} cannot run:"]
    lines += [f"  {_line(problem)}" for problem in problems]
    lines += advice(problems, cpu_kernels, fallback)
    items = [_line(p) if p.kind == "dtype" else p.subject for p in problems]
    raise UnsupportedError("\n".join(lines), items, code=common_code(problems))


def _line(problem: Problem) -> str:
    if problem.kind == "dtype":  # one call, which its place tells from others of its op
        return f"{problem.subject} ({problem.where[0]}) {problem.detail}"
    return str(problem)
