"""From a graph and a device's capabilities to a frozen plan, and from live shapes to schedules."""

from ..ops import WHOLE, Binding
from .integers import overflowed
from .limits import REMEDIES, buffer_name
from .lowering import Example, Live, LoweredCall, Lowering, Schedule
from .memory import Buffer, Fill, padded
from .plan import Plan, draft_plan, make_plan
from .segments import Block, HostCalls, Layout, Segment
from .support import advice, unsupported
from .validate import wrong

__all__ = [
    "REMEDIES",
    "WHOLE",
    "Binding",
    "Block",
    "Buffer",
    "Example",
    "Fill",
    "HostCalls",
    "Layout",
    "Live",
    "LoweredCall",
    "Lowering",
    "Plan",
    "Schedule",
    "Segment",
    "advice",
    "buffer_name",
    "draft_plan",
    "make_plan",
    "overflowed",
    "padded",
    "unsupported",
    "wrong",
]
