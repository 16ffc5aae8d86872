"""Programs and methods you can call."""

from typing import TYPE_CHECKING

from ..deferred import lazy_exports

if TYPE_CHECKING:
    from ..device import Extent, Memory, MemoryNeeds
    from .arguments import ArgumentInfo, describe, describe_all
    from .bundle import Bundle
    from .executorch import Runtime, Verification
    from .loading import load, load_program, load_source
    from .method import Method
    from .program import MethodSource, Program
    from .tuning import TunedKernel, TuningResult, tuning_cache_path

__all__ = [
    "ArgumentInfo",
    "Bundle",
    "Extent",
    "Memory",
    "MemoryNeeds",
    "Method",
    "MethodSource",
    "Program",
    "Runtime",
    "TunedKernel",
    "TuningResult",
    "Verification",
    "describe",
    "describe_all",
    "load",
    "load_program",
    "load_source",
    "tuning_cache_path",
]

# Checks of arguments are of use where nothing is run, too: these names alone need the device.
_HOMES = {
    "ArgumentInfo": "arguments",
    "Bundle": "bundle",
    "TunedKernel": "tuning",
    "TuningResult": "tuning",
    "Extent": "state",
    "Memory": "program",
    "Method": "method",
    "MethodSource": "program",
    "MemoryNeeds": "program",
    "Program": "program",
    "Runtime": "executorch",
    "Verification": "executorch",
    "tuning_cache_path": "tuning",
    "describe": "arguments",
    "describe_all": "arguments",
    "load": "loading",
    "load_program": "loading",
    "load_source": "loading",
}

if not TYPE_CHECKING:  # as in `webpte.llm`
    __getattr__ = lazy_exports(__name__, _HOMES)
