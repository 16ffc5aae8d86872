"""Programs and methods you can call."""

from ..device import Span
from .arguments import ArgumentInfo, describe
from .choices import choices_path
from .executorch import Runtime
from .method import Method
from .program import Program, load
from .tuning import Choice

__all__ = [
    "ArgumentInfo",
    "Choice",
    "Method",
    "Program",
    "Runtime",
    "Span",
    "choices_path",
    "describe",
    "load",
]
