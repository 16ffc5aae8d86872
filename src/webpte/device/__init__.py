"""GPU objects: the only package that imports wgpu."""

from .adapter import AdapterInfo, adapter_caps, adapters, exact_products, wgpu_versions
from .budget import MEMORY_KINDS, Memory, MemoryNeeds, memory_line, memory_needs, program_memory, state_memory_needs
from .gpu import NO_OBSERVER, Counters, Gpu, Observer, acquire, use_adapter
from .memory import allocated_bytes, limit_allocations, memory_limit
from .session import Extent, Session, Submission, SubmissionInFlight
from .weights import WeightBuffers, constant_key, storage_dtype
from .workspace import Feed, Workspace

__all__ = [
    "MEMORY_KINDS",
    "NO_OBSERVER",
    "AdapterInfo",
    "Counters",
    "Extent",
    "Feed",
    "Gpu",
    "Memory",
    "MemoryNeeds",
    "Observer",
    "Session",
    "Submission",
    "SubmissionInFlight",
    "WeightBuffers",
    "Workspace",
    "acquire",
    "adapter_caps",
    "adapters",
    "allocated_bytes",
    "constant_key",
    "exact_products",
    "limit_allocations",
    "memory_limit",
    "memory_line",
    "memory_needs",
    "program_memory",
    "state_memory_needs",
    "storage_dtype",
    "use_adapter",
    "wgpu_versions",
]
