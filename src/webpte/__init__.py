"""Run ExecuTorch .pte programs on any GPU through WebGPU.

import webpte

with webpte.load("model.pte") as program:
    y = program.method("forward")(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    CancelledError,
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
    from .bundles import bundle
    from .notebook import widget
    from .progress import CancelToken
    from .runtime import Method, Program, Runtime, load
    from .runtime.saved_plan import SavedPlan, open_plan

__all__ = [
    "CancelToken",
    "CancelledError",
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
    "bundle",
    "load",
    "open_plan",
    "widget",
]


def __getattr__(name: str) -> Any:
    # The runtime imports NumPy and wgpu; `import webpte` and `webpte --help` should not wait for them.
    if name in ("Method", "Program", "Runtime", "load"):
        from . import runtime

        return getattr(runtime, name)
    if name in ("SavedPlan", "open_plan"):
        from .runtime import saved_plan

        return getattr(saved_plan, name)
    if name == "widget":
        from .notebook import widget

        return widget
    if name == "CancelToken":
        from .progress import CancelToken

        return CancelToken
    if name == "bundle":
        from .bundles import bundle

        return bundle
    raise AttributeError(f"module 'webpte' has no attribute {name!r}")
