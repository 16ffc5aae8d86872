"""The shape ExecuTorch users know: `Runtime.get().load_program(p).load_method("forward").execute([x])`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .loading import load
from .method import Method
from .program import Program


class Runtime:
    """Stands in for `executorch.runtime.Runtime`."""

    _instance: Runtime | None = None

    @classmethod
    def get(cls) -> Runtime:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def load_program(self, path: str | os.PathLike[str]) -> RuntimeProgram:
        return RuntimeProgram(load(path))


class RuntimeProgram:
    """Stands in for `executorch.runtime.Program`."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @property
    def method_names(self) -> set[str]:
        return set(self.program.method_names)

    def load_method(self, name: str) -> RuntimeMethod:
        return RuntimeMethod(self.program.method(name))


class RuntimeMethod:
    """Stands in for `executorch.runtime.Method`."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Outputs as a list of NumPy arrays and Python numbers."""
        return list(self.method.run(tuple(inputs)))
