"""From a graph and a device's capabilities to a frozen plan, and from live shapes to schedules."""

from ..lowering import WHOLE, Binding
from .limits import REMEDIES, buffer_name
from .lowering import Example
from .memory import Buffer, Fill, padded
from .opened import Opened, load_plan
from .plan import Plan, Scratch
from .planner import Planner, draft, make_planner
from .saved import save_plan
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
    "Opened",
    "Plan",
    "Planner",
    "Schedule",
    "Scheduler",
    "Scratch",
    "Segment",
    "advice",
    "buffer_name",
    "draft",
    "load_plan",
    "make_planner",
    "padded",
    "save_plan",
    "unsupported",
    "wrong",
]
