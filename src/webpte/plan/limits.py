"""What of a plan exceeds the limits of a device, and who asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import DeviceError, Problem, remedies
from ..graph import Call
from ..ops import WHOLE
from ..wgsl import Caps
from ..wgsl.kernel import SYM_SLOTS
from .lowering import Schedule
from .memory import Buffer

if TYPE_CHECKING:
    from .plan import Plan

REMEDIES = {
    "constant": 'Quantise the weight (webpte export --quantize 4w, or lower(..., quantize="4w")), or split its layer.',
    "state": "Export with a shorter context (webpte export --max-context N).",
    "activation": 'Export with a smaller upper bound: torch.export.Dim("name", max=N).',
}
VALUES_NAMED = 3


def over_limits(plan: Plan, caps: Caps, schedules: Sequence[Schedule]) -> list[Problem]:
    """Buffers and bindings that are too large, kernels that bind too many, and integers they have no room for."""
    problems = []
    whole = {plan.buffer_of[b.tensor] for b in plan.lowering.touched if b.nbytes == WHOLE}
    for number, buffer in enumerate(plan.buffers):
        limit, verb = caps.limit("max-buffer-size"), "allocates"
        if number in whole:
            limit, verb = min(limit, caps.limit("max-storage-buffer-binding-size")), "binds"
        if buffer.nbytes > limit:
            problems.append(_too_large(plan, buffer, f"{buffer.nbytes} bytes, the device {verb} {limit}"))
    count = caps.limit("max-storage-buffers-per-shader-stage")
    for kernel in plan.kernels:
        if kernel.reads + kernel.writes > count:
            detail = f"binds {kernel.reads + kernel.writes} buffers, the device allows {count}"
            lowered = [c for s in schedules for c in s.calls if any(d.kernel == kernel for d in c.dispatches)]
            problems.append(Problem("limit", kernel.label, detail, _named(c.bound.call for c in lowered)))
    return problems + _too_many_integers(plan)


def _too_many_integers(plan: Plan) -> list[Problem]:
    count = len(plan.lowering.context.slots)
    if count <= SYM_SLOTS:
        return []
    detail = f"{count} are read by kernels, whose block of them holds {SYM_SLOTS} on every device"
    remedy = "Split the method, or keep numbers taken from data in tensors: index_select instead of item()."
    return [Problem("limit", "live integers:", detail, (), remedy)]


def refuse_over_limits(name: str, caps: Caps, problems: Sequence[Problem]) -> None:
    """Raise one error that names all of them."""
    if problems:
        listed = "\n  ".join([*map(str, problems), *remedies(problems)])
        raise DeviceError(f"{name} exceeds the limits of {caps.adapter}:\n  {listed}")


def _blamed(plan: Plan, buffer: Buffer) -> list[int]:
    """The values a buffer is so large for: others share it because they fit."""
    known = [t for t in buffer.tensors if t < len(plan.graph.values)]
    largest = max((plan.stored_bytes(t) for t in known), default=0)
    return [t for t in known if plan.stored_bytes(t) == largest][:VALUES_NAMED]


def buffer_name(plan: Plan, buffer: Buffer) -> str:
    """What a buffer is for."""
    return ", ".join(f"value {t} {plan.graph.tensor(t)}" for t in _blamed(plan, buffer)) or "scratch of a call"


def _too_large(plan: Plan, buffer: Buffer, detail: str) -> Problem:
    graph, blamed = plan.graph, _blamed(plan, buffer)
    users = [c for c in graph.calls if {*graph.flatten(c.args), *c.outs} & set(blamed)]
    if not blamed:
        owners = [step for (step, _), t in plan.lowering.context.scratch_tensors.items() if t.id in buffer.tensors]
        users = [step for index in owners if isinstance(step := graph.steps[index], Call)]
    return Problem("limit", f"{buffer_name(plan, buffer)}:", detail, _named(users), REMEDIES[buffer.kind])


def _named(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{call.name} ({call.origin})" for call in calls))
