"""Run ExecuTorch .pte programs on any GPU through WebGPU.

import webpte

with webpte.load("model.pte") as program:
    y = program.method("forward")(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .deferred import (
    build_cached_program,
    fetch_program,
    lazy_exports,
    open_remote_files,
    read_adapters,
    show_in_notebook,
)
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
    HubError,
    InputError,
    OutOfMemory,
    RangeError,
    ShapeError,
    UnsupportedError,
)
from .version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from . import batch, embed, export, llm, speech, vision
    from .bundles import bundle
    from .debug import show_versions
    from .measure.evaluation.programs import evaluate
    from .notebook import widget
    from .progress import CancelToken, OnProgress, Progress
    from .runtime import ArgumentInfo, Bundle, Memory, MemoryNeeds, Method, Program, Runtime, Verification, load
    from .runtime.saved_plan import SavedPlan, open_plan
    from .sources import RemoteProgram
    from .typing import PathLike

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
    "HubError",
    "InputError",
    "Memory",
    "MemoryNeeds",
    "Method",
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
    "batch",
    "bundle",
    "embed",
    "evaluate",
    "export",
    "llm",
    "load",
    "open_plan",
    "show_versions",
    "speech",
    "vision",
    "widget",
]

# Where the rest comes from when it is first asked for: `import webpte` and `webpte --help` wait neither for NumPy nor
# for wgpu. Subpackages such as `llm` are exported as modules.
_HOMES = {
    "ArgumentInfo": "runtime",
    "Bundle": "runtime",
    "CancelToken": "progress",
    "Memory": "runtime",
    "Method": "runtime",
    "MemoryNeeds": "runtime",
    "Program": "runtime",
    "Progress": "progress",
    "Runtime": "runtime",
    "SavedPlan": "runtime.saved_plan",
    "Verification": "runtime",
    "batch": "batch",
    "bundle": "bundles",
    "embed": "embed",
    "evaluate": "measure.evaluation.programs",
    "export": "export",
    "llm": "llm",
    "load": "runtime",
    "open_plan": "runtime.saved_plan",
    "show_versions": "debug",
    "speech": "speech",
    "vision": "vision",
    "widget": "notebook",
}


@show_in_notebook.provide
def _show(source: Any, **options: Any) -> object:
    from .notebook import widget

    return widget(source, **options)


@build_cached_program.provide
def _build(source: PathLike, progress: OnProgress, max_context: int | None) -> Path:
    from .builder.programs import cached_program

    return cached_program(source, progress, max_context)


@fetch_program.provide
def _fetch(name: str, progress: OnProgress) -> RemoteProgram | None:
    from .checkpoints.remote_programs import fetch

    return fetch(name, progress)


@read_adapters.provide
def _read_adapters(folders: Mapping[str, PathLike], modules: bytes, where: str) -> Any:
    from .checkpoints.adapters import read_adapters

    return read_adapters(folders, modules, where)


@open_remote_files.provide
def _open_remote(name: str) -> AbstractContextManager[list[Any]]:
    from .checkpoints.remote_programs import open_files

    return open_files(name)


if not TYPE_CHECKING:  # type checkers would take it for a promise that any name is there
    __getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
