"""From a graph and a device's capabilities to a frozen plan, and from live shapes to schedules."""

from ..lowering import WHOLE, Binding
from .memory import Buffer, BufferFill, padded
from .plan import Plan, Scratch
from .planner import REMEDIES, Example, Planner, buffer_name, draft, make_planner
from .schedules import CallValues, DispatchWork, LoweredCall, Schedule, ScheduleStore
from .segments import Flow, FlowBlock, HostCalls, PlanSegment, advice, unsupported
from .validate import wrong
from .work import CallWork

__all__ = [
    "REMEDIES",
    "WHOLE",
    "Binding",
    "Buffer",
    "BufferFill",
    "CallValues",
    "CallWork",
    "DispatchWork",
    "Example",
    "Flow",
    "FlowBlock",
    "HostCalls",
    "LoweredCall",
    "Plan",
    "PlanSegment",
    "Planner",
    "Schedule",
    "ScheduleStore",
    "Scratch",
    "advice",
    "buffer_name",
    "draft",
    "make_planner",
    "padded",
    "unsupported",
    "wrong",
]
