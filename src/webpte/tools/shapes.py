"""What lowering tells about the calls of a plan: kernels, and which dims follow the inputs' shapes."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ShapeError
from ..plan import LoweredCall, Plan, Planner

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
