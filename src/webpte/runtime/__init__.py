"""Programs and methods you can call."""

from ..device import Extent, Needs
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
    "Method",
    "Needs",
    "Program",
    "Runtime",
    "Verification",
    "choices_path",
    "describe",
    "describe_all",
    "load",
]
