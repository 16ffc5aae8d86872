"""From a graph and a device's capabilities to a frozen plan, and from live shapes to schedules."""

from ..lowering import WHOLE, Binding
from .limits import REMEDIES, buffer_name
from .lowering import Example
from .memory import Buffer, Fill, padded
from .plan import Plan, Scratch
from .planner import Planner, draft, make_planner
from .schedules import CallValues, LoweredCall, Schedule, Scheduler
from .segments import Block, Flow, HostCalls, Segment
from .support import advice, unsupported
from .validate import wrong

__all__ = [
    "REMEDIES",
    "WHOLE",
    "Binding",
    "Block",
    "Buffer",
    "CallValues",
    "Example",
    "Fill",
    "Flow",
    "HostCalls",
    "LoweredCall",
    "Plan",
    "Planner",
    "Schedule",
    "Scheduler",
    "Scratch",
    "Segment",
    "advice",
    "buffer_name",
    "draft",
    "make_planner",
    "padded",
    "unsupported",
    "wrong",
]
