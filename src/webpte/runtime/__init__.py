"""Programs and methods you can call."""

from ..device import Extent
from .arguments import ArgumentInfo, describe
from .choices import choices_path
from .executorch import Runtime
from .method import Method
from .program import Program, load
from .tuning import Choice

__all__ = [
    "ArgumentInfo",
    "Choice",
    "Extent",
    "Method",
    "Program",
    "Runtime",
    "choices_path",
    "describe",
    "load",
]
