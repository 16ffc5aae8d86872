"""Run ExecuTorch .pte programs on any GPU through WebGPU.

import webpte

with webpte.load("model.pte") as program:
    y = program.method("forward")(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    ClosedError,
    DataError,
    DeviceError,
    DeviceLost,
    Error,
    ForkedError,
    FormatError,
    GraphError,
    GuardError,
    InputError,
    OutOfMemory,
    RangeError,
    ShapeError,
    UnsupportedError,
)
from .version import __version__

if TYPE_CHECKING:
    from .runtime import Method, Program, Runtime, SavedPlan, load, open_plan

__all__ = [
    "ClosedError",
    "DataError",
    "DeviceError",
    "DeviceLost",
    "Error",
    "ForkedError",
    "FormatError",
    "GraphError",
    "GuardError",
    "InputError",
    "Method",
    "OutOfMemory",
    "Program",
    "RangeError",
    "Runtime",
    "SavedPlan",
    "ShapeError",
    "UnsupportedError",
    "__version__",
    "load",
    "open_plan",
]


def __getattr__(name: str) -> Any:
    # The runtime imports NumPy and wgpu; `import webpte` and `webpte --help` should not wait for them.
    if name in ("Method", "Program", "Runtime", "SavedPlan", "load", "open_plan"):
        from . import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'webpte' has no attribute {name!r}")
