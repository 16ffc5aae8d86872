"""Programs and methods you can call."""

from .choices import choices_path
from .executorch import Runtime
from .method import ArgumentInfo, Method, describe
from .program import Program, load
from .tuning import Choice

__all__ = ["ArgumentInfo", "Choice", "Method", "Program", "Runtime", "choices_path", "describe", "load"]
