"""Programs and methods you can call."""

from .executorch import Runtime
from .method import ArgumentInfo, Method, describe
from .program import Program, load

__all__ = ["ArgumentInfo", "Method", "Program", "Runtime", "describe", "load"]
