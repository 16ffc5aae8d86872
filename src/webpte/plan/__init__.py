"""From a graph and a device's capabilities to a frozen plan, and from live shapes to schedules."""

from ..lowering import WHOLE, Binding
from .memory import Buffer, BufferFill, padded
from .plan import Plan, Scratch
from .planner import REMEDIES, Example, Planner, buffer_name, draft, make_planner
from .schedules import CallValues, LoweredCall, Schedule, ScheduleStore
from .segments import Flow, FlowBlock, HostCalls, PlanSegment, advice, unsupported
from .validate import wrong

__all__ = [
    "REMEDIES",
    "WHOLE",
    "Binding",
    "Buffer",
    "BufferFill",
    "CallValues",
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
