"""Programs and methods you can call."""

from typing import TYPE_CHECKING

from ..deferred import names_of

if TYPE_CHECKING:
    from ..device import Extent, MemoryNeeds
    from .arguments import ArgumentInfo, describe, describe_all
    from .bundle import Bundle
    from .choices import choices_path
    from .executorch import Runtime, Verification
    from .loading import load
    from .memory import Memory
    from .method import Method
    from .program import Program
    from .tuning import Choice, Choices

__all__ = [
    "ArgumentInfo",
    "Bundle",
    "Choice",
    "Choices",
    "Extent",
    "Memory",
    "MemoryNeeds",
    "Method",
    "Program",
    "Runtime",
    "Verification",
    "choices_path",
    "describe",
    "describe_all",
    "load",
]

# Checks of arguments are of use where nothing is run, too: these names alone need the device.
_HOMES = {
    "ArgumentInfo": "arguments",
    "Bundle": "bundle",
    "Choice": "tuning",
    "Choices": "tuning",
    "Extent": "method",
    "Memory": "memory",
    "Method": "method",
    "MemoryNeeds": "program",
    "Program": "program",
    "Runtime": "executorch",
    "Verification": "executorch",
    "choices_path": "choices",
    "describe": "arguments",
    "describe_all": "arguments",
    "load": "loading",
}

if not TYPE_CHECKING:  # as in `webpte.llm`
    __getattr__ = names_of(__name__, _HOMES)
