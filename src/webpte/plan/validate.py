"""Check a whole graph before any pass, and report all defects at once.

The container has checked offsets and ids; this checks meaning. All later stages rely on: every id exists; lists
hold no lists; each op has the number and kinds of arguments that it takes; no value is read before it is written; no
value is written twice inside a delegate, or while it is read; callers can pass the inputs and get the outputs; shapes
are within the budgets.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..budgets import limit, over
from ..errors import Error, GraphError, Problem, common_code
from ..graph import (
    LIVE_SCALARS,
    Bool,
    BoolList,
    Call,
    Double,
    DoubleList,
    Graph,
    Int,
    IntList,
    Jump,
    Null,
    String,
    TensorSpec,
    Value,
    ValueList,
    numel,
)
from ..lowering import BoundCall, Frame, MethodContext, find, mutated_values
from ..wgsl import Caps

SHOWN = 20  # problems that an error spells out
GIVEN = (TensorSpec, *LIVE_SCALARS)  # values that callers pass or calls write
RETURNED = (*GIVEN, Int, Double, Bool, String, Null)
CONDITIONS = (*GIVEN, Int, Double, Bool)
LISTS = (ValueList, IntList, DoubleList, BoolList)


def refuse_wrong(graph: Graph, in_order: bool = True) -> None:
    """Raise one error that names everything that is wrong."""
    problems = wrong(graph, in_order)
    if not problems:
        return
    texts, code = [str(problem) for problem in problems], common_code(problems)
    if len(texts) == 1:
        raise GraphError(texts[0], code=code)
    more = [f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    lines = "\n  ".join(texts[:SHOWN] + more)
    raise GraphError(f"{graph.name} has {len(texts)} defects:\n  {lines}", code=code)


def wrong(graph: Graph, in_order: bool = True) -> list[Problem]:
    """Return all defects of a graph, those first that make the others meaningless.

    Not `in_order` are the calls of a saved plan: only those for the CPU are left.
    """
    for look in (_sizes, _ids, _borders):
        problems = list(look(graph))
        if problems:
            return problems
    return [*_calls(graph), *(_order(graph) if in_order else ())]


def _problem(subject: str, detail: str, code: str, where: str = "") -> Problem:
    return Problem("graph", subject, detail, (where or subject,), code=code)


def _of(call: Call, detail: str, code: str) -> Problem:
    return _problem(f"{call.name} ({call.origin})", detail, code, str(call.origin))


def _sizes(graph: Graph) -> Iterator[Problem]:
    for name, asked in (("calls", len(graph.steps)), ("values", len(graph.values))):
        if asked > limit(name):
            yield _problem(graph.name, f"has {over(name, asked)}", "over_budget")


def _ids(graph: Graph) -> Iterator[Problem]:
    """Yield ids that do not exist, and values that are too large or have invalid contents."""
    count = len(graph.values)
    for value_id, value in enumerate(graph.values):
        detail, code = _wrong_value(value, graph.values)
        if detail:
            yield _problem(f"value {value_id}", detail, code)
    for step in graph.steps:
        ids = (step.condition,) if isinstance(step, Jump) else (*step.args, *step.outs)
        if ids and not (min(ids) >= 0 and max(ids) < count):
            yield _problem(
                str(step.origin), f"names value {max(ids)}; {graph.name} has {count} values", "unknown_value"
            )


def _wrong_value(value: Value, values: tuple[Value, ...]) -> tuple[str, str]:
    """Return what is wrong with a value and the code for it; two empty strings if nothing is."""
    if isinstance(value, TensorSpec):
        if len(value.dims) > limit("dims"):
            return f"has {over('dims', len(value.dims))}", "over_budget"
        nbytes = numel(value.dims) * max(value.dtype.itemsize, value.host_dtype.itemsize)
        return (f"has {over('tensor bytes', nbytes)}", "over_budget") if nbytes > limit("tensor bytes") else ("", "")
    if not isinstance(value, LISTS):
        return "", ""
    members = value.ids if isinstance(value, ValueList) else value.values
    if len(members) > limit("list members"):
        return f"has {over('list members', len(members))}", "over_budget"
    if isinstance(value, ValueList):
        for member in value.ids:
            if not 0 <= member < len(values):
                return f"lists value {member}, which does not exist", "unknown_value"
            if isinstance(values[member], LISTS):
                return f"is a list that holds a list, value {member}", "nested_list"
    return "", ""


def _borders(graph: Graph) -> Iterator[Problem]:
    """Yield inputs and outputs of kinds that callers cannot pass or receive."""
    count, values = len(graph.values), graph.values
    for kind, ids, allowed in (("input", graph.inputs, GIVEN), ("output", graph.outputs, RETURNED)):
        for position, value_id in enumerate(ids):
            if not 0 <= value_id < count:
                yield _problem(
                    f"{kind} {position}", f"is value {value_id}; {graph.name} has {count} values", "unknown_value"
                )
            elif not isinstance(values[value_id], (*allowed, Null, String)):
                name = type(values[value_id]).__name__
                yield _problem(
                    f"{kind} {position}", f"is value {value_id}, a {name}, which cannot be an {kind}", "wrong_kind"
                )
    seen: set[int] = set()
    for position, value_id in enumerate(graph.inputs):
        if value_id in seen:
            yield _problem(f"input {position}", f"is value {value_id}, which is an input already", "duplicate_input")
        elif 0 <= value_id < count and getattr(values[value_id], "constant", None) is not None:
            yield _problem(
                f"input {position}", f"is value {value_id}, which the file gives a constant", "constant_input"
            )
        seen.add(value_id)


def _calls(graph: Graph) -> Iterator[Problem]:
    """Yield calls whose arguments do not match the signature of their op, and invalid conditions of jumps."""
    frame = Frame(graph, MethodContext(Caps(), len(graph.values)))
    for step in graph.steps:
        if isinstance(step, Jump):
            condition = graph.values[step.condition]
            if not isinstance(condition, CONDITIONS):
                yield _problem(
                    str(step.origin), f"jumps on value {step.condition}, a {type(condition).__name__}", "wrong_kind"
                )
            continue
        op = find(step)
        try:
            if op is not None and op.dtypes:
                BoundCall(op, step, frame)
            elif op is not None:  # only a reference: it is never lowered
                op.bound_parameters(step)
        except Error as error:  # names the call itself
            yield Problem(
                "graph", step.name, str(error).removeprefix(f"{step.name} "), (str(step.origin),), "", error.reason
            )
            continue
        yield from _outs(graph, step, set(mutated_values(step, graph)) if op is not None else set(step.args))


def _outs(graph: Graph, call: Call, in_place: set[int]) -> Iterator[Problem]:
    read = set(graph.flatten(call.args))
    for out in call.outs:
        value = graph.values[out]
        if not isinstance(value, GIVEN):
            yield _of(call, f"writes value {out}, which is a {type(value).__name__}", "wrong_kind")
        elif out in read and out not in in_place and isinstance(value, TensorSpec):  # numbers are read first
            yield _of(call, f"writes value {out} while it reads it", "aliased_output")
    if len(set(call.outs)) != len(call.outs):
        yield _of(call, f"writes one value twice: its outputs are {list(call.outs)}", "written_twice")


def _order(graph: Graph) -> Iterator[Problem]:
    """Yield reads before writes, second writes inside a delegate, and outputs that no call writes.

    With jumps the order is known only when the method runs; then it must be enough that something writes a value.
    """
    ordered = not any(isinstance(step, Jump) for step in graph.steps)
    defined = set(graph.inputs)
    if not ordered:
        defined.update(out for call in graph.calls for out in call.outs)
    writer: dict[int, Call] = {}
    for call in graph.calls:
        for value_id in graph.flatten(call.args):
            value = graph.values[value_id]
            defined_here = value_id in defined or value_id in call.outs or getattr(value, "stored", False)
            if not defined_here and isinstance(value, GIVEN):
                yield _of(call, f"reads value {value_id} {value} before anything wrote it", "read_before_write")
                defined.add(value_id)  # once is enough
        for out in call.outs:
            first = writer.setdefault(out, call)
            if first is not call and _same_delegate(first, call) and out not in call.args:
                yield _of(call, f"writes value {out}, which {first.name} ({first.origin}) has written", "written_twice")
        defined.update(call.outs)
    for position, value_id in enumerate(graph.outputs):
        value = graph.values[value_id]
        if value_id not in defined and isinstance(value, GIVEN) and not getattr(value, "stored", False):
            yield _problem(f"output {position}", f"is value {value_id}, which nothing writes", "never_written")


def _same_delegate(a: Call, b: Call) -> bool:
    return a.origin.delegate is not None and (a.origin.delegate, a.origin.instruction) == (
        b.origin.delegate,
        b.origin.instruction,
    )
