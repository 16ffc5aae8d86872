"""Run ExecuTorch .pte programs on any GPU through WebGPU.

import webpte

with webpte.load("model.pte") as program:
    y = program.method("forward")(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from . import export, llm
    from .bundles import bundle
    from .notebook import widget
    from .progress import CancelToken, Progress
    from .runtime import ArgumentInfo, Bundle, Memory, Method, Needs, Program, Runtime, Verification, load
    from .runtime.saved_plan import SavedPlan, open_plan
    from .tools.show_versions import show_versions

__all__ = [
    "ArgumentInfo",
    "Bundle",
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
    "Memory",
    "Method",
    "Needs",
    "OutOfMemory",
    "Program",
    "Progress",
    "RangeError",
    "Runtime",
    "SavedPlan",
    "ShapeError",
    "UnsupportedError",
    "Verification",
    "__version__",
    "bundle",
    "export",
    "llm",
    "load",
    "open_plan",
    "show_versions",
    "widget",
]

# Where the rest comes from when it is first asked for: `import webpte` and `webpte --help` wait neither for NumPy nor
# for wgpu. `export` and `llm` are themselves what is public.
_HOMES = {
    "ArgumentInfo": "runtime",
    "Bundle": "runtime",
    "CancelToken": "progress",
    "Memory": "runtime",
    "Method": "runtime",
    "Needs": "runtime",
    "Program": "runtime",
    "Progress": "progress",
    "Runtime": "runtime",
    "SavedPlan": "runtime.saved_plan",
    "Verification": "runtime",
    "bundle": "bundles",
    "export": "export",
    "llm": "llm",
    "load": "runtime",
    "open_plan": "runtime.saved_plan",
    "show_versions": "tools.show_versions",
    "widget": "notebook",
}

if not TYPE_CHECKING:  # type checkers would take it for a promise that any name is there

    def __getattr__(name):
        if name not in _HOMES:
            import sys

            raise AttributeError(f"module 'webpte' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        from importlib import import_module

        home = import_module(f".{_HOMES[name]}", __name__)
        found = home if _HOMES[name] == name else getattr(home, name)
        globals()[name] = found  # asked once
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
