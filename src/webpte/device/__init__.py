"""GPU objects: the only room that touches wgpu."""

from .gpu import Counters, Gpu, acquire, adapter_caps
from .session import Session
from .weights import Weights, storage_dtype

__all__ = ["Counters", "Gpu", "Session", "Weights", "acquire", "adapter_caps", "storage_dtype"]
