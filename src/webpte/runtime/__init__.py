"""Programs and methods you can call."""

from ..device import Extent, Needs
from .arguments import ArgumentInfo, describe, describe_all
from .bundle import Bundle
from .choices import choices_path
from .executorch import Runtime
from .loading import load
from .method import Method
from .program import Program
from .tuning import Choice, Choices

__all__ = [
    "ArgumentInfo",
    "Bundle",
    "Choice",
    "Choices",
    "Extent",
    "Method",
    "Needs",
    "Program",
    "Runtime",
    "choices_path",
    "describe",
    "describe_all",
    "load",
]
