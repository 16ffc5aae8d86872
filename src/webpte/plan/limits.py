"""What of a plan exceeds the limits of a device, and who asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import DeviceError, Problem, remedies
from ..graph import Call
from ..lowering import Binding
from ..wgsl import Caps, Kernel
from ..wgsl.kernel import SYM_SLOTS
from .memory import Buffer

if TYPE_CHECKING:
    from .plan import Plan
    from .schedules import Schedule

REMEDIES = {
    "constant": 'Quantise the weight (webpte export --quantize 4w, or lower(..., quantize="4w")), or split its layer.',
    "state": "Export with a shorter context (webpte export --max-context N).",
    "activation": 'Export with a smaller upper bound: torch.export.Dim("name", max=N).',
}
VALUES_NAMED = 3


def over_limits(plan: Plan, caps: Caps, schedules: Sequence[Schedule], touched: Iterable[Binding]) -> list[Problem]:
    """Buffers and bindings that are too large, kernels that bind too many, and integers they have no room for."""
    problems = []
    bound: dict[int, int] = {}  # buffer -> the most of it that some dispatch binds at once
    for binding in touched:
        number = plan.buffer_of[binding.tensor]
        bound[number] = max(bound.get(number, 0), plan.bound_bytes(binding))
    most, limit = caps.limit("max-buffer-size"), caps.limit("max-storage-buffer-binding-size")
    for number, buffer in enumerate(plan.buffers):
        if buffer.nbytes > most:
            problems.append(_too_large(plan, buffer, f"{buffer.nbytes} bytes, the device allocates {most}"))
        elif bound.get(number, 0) > limit:
            problems.append(_too_large(plan, buffer, f"{bound[number]} bytes at once, the device binds {limit}"))
    count = caps.limit("max-storage-buffers-per-shader-stage")
    crowded = [k for k in plan.kernels if k.reads + k.writes > count]
    if problems:  # the many parts of a buffer that is too large are no problem of their own
        crowded = [k for k in crowded if not k.parts]
    problems += [_too_many_bound(plan, k, count, schedules) for k in crowded]
    return problems + _too_many_integers(schedules)


def _too_many_bound(plan: Plan, kernel: Kernel, count: int, schedules: Sequence[Schedule]) -> Problem:
    lowered = [(c.step, d) for s in schedules for c in s.calls for d in c.dispatches if d.kernel == kernel]
    detail = f"binds {kernel.reads + kernel.writes} buffers, the device allows {count}"
    remedy = ""
    if kernel.parts:
        tensors = Counter(binding.tensor for _, d in lowered[:1] for binding in d.bindings)
        largest, parts = tensors.most_common(1)[0]
        buffer = plan.buffers[plan.buffer_of[largest]]
        detail += f"; {buffer_name(plan, buffer)} of {buffer.nbytes} bytes are {parts} of them"
        remedy = REMEDIES[buffer.kind]
    return Problem("limit", kernel.label, detail, _named(plan.graph.call(step) for step, _ in lowered), remedy)


def _too_many_integers(schedules: Sequence[Schedule]) -> list[Problem]:
    count = max((len(schedule.slots) for schedule in schedules), default=0)
    if count <= SYM_SLOTS:
        return []
    detail = f"{count} are read by kernels, whose block of them holds {SYM_SLOTS} on every device"
    remedy = "Split the method, or keep numbers taken from data in tensors: index_select instead of item()."
    return [Problem("limit", "live integers:", detail, (), remedy)]


def refuse_over_limits(name: str, caps: Caps, problems: Sequence[Problem]) -> None:
    """Raise one error that names all of them."""
    if problems:
        listed = "\n  ".join([*map(str, problems), *remedies(problems)])
        raise DeviceError(f"{name} exceeds the limits of {caps.adapter}:\n  {listed}", code="over_limits")


def _blamed(plan: Plan, buffer: Buffer) -> list[int]:
    """The values a buffer is so large for: others share it because they fit."""
    known = [t for t in buffer.tensors if t < len(plan.graph.values)]
    largest = max((plan.stored_bytes(t) for t in known), default=0)
    return [t for t in known if plan.stored_bytes(t) == largest][:VALUES_NAMED]


def buffer_name(plan: Plan, buffer: Buffer) -> str:
    """What a buffer is for."""
    if not buffer.tensors:  # of a saved plan
        return f"{buffer.kind} buffer" if buffer.fill is None else f"constant {buffer.fill.constant.name}"
    return ", ".join(f"value {t} {plan.graph.tensor(t)}" for t in _blamed(plan, buffer)) or "scratch of a call"


def _too_large(plan: Plan, buffer: Buffer, detail: str) -> Problem:
    graph, blamed = plan.graph, _blamed(plan, buffer)
    users = [c for c in graph.calls if {*graph.flatten(c.args), *c.outs} & set(blamed)]
    if not blamed:
        owners = [scratch.step for value_id, scratch in plan.scratch.items() if value_id in buffer.tensors]
        users = [step for index in owners if isinstance(step := graph.steps[index], Call)]
    return Problem("limit", f"{buffer_name(plan, buffer)}:", detail, _named(users), REMEDIES[buffer.kind])


def _named(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{call.name} ({call.origin})" for call in calls))
