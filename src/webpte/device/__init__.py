"""GPU objects: the only room that touches wgpu."""

from .adapters import AdapterInfo, adapters, wgpu_versions
from .budget import MEMORY_KINDS, Needs, needs, needs_of_state
from .counters import Counters
from .gpu import Gpu, acquire, adapter_caps, use_adapter
from .handover import Feed
from .ledger import held
from .machine_memory import offered
from .observing import Observer
from .session import Extent, Session
from .weights import Weights, constant_key, storage_dtype
from .workspace import Workspace

__all__ = [
    "MEMORY_KINDS",
    "AdapterInfo",
    "Counters",
    "Extent",
    "Feed",
    "Gpu",
    "Needs",
    "Observer",
    "Session",
    "Weights",
    "Workspace",
    "acquire",
    "adapter_caps",
    "adapters",
    "constant_key",
    "held",
    "needs",
    "needs_of_state",
    "offered",
    "storage_dtype",
    "use_adapter",
    "wgpu_versions",
]
