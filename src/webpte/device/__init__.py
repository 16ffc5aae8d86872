"""GPU objects: the only room that touches wgpu."""

from .adapters import AdapterInfo, adapters, wgpu_versions
from .gpu import Counters, Gpu, acquire, adapter_caps
from .handover import Feed
from .session import Session
from .weights import Weights, storage_dtype

__all__ = [
    "AdapterInfo",
    "Counters",
    "Feed",
    "Gpu",
    "Session",
    "Weights",
    "acquire",
    "adapter_caps",
    "adapters",
    "storage_dtype",
    "wgpu_versions",
]
