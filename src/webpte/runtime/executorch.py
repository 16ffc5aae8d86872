"""The shape ExecuTorch users know: `Runtime.get().load_program(p).load_method("forward").execute([x])`.

Names and meanings are those of `executorch.runtime`; outputs are NumPy arrays and Python numbers, and failures
`webpte.Error`s.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence

from ..container import MethodPlan, TensorValue
from ..errors import InputError, UnsupportedError
from ..graph import BACKENDS
from ..lowering import registered
from .arguments import DLPack, Input, Value, ordered_inputs
from .checks import check_bool, check_int, check_method_name, check_path, check_str, wrong_argument
from .loading import Source, check_source, load_program
from .method import Method
from .program import Program

_NO_DUMP = "webpte does not write ETDump files. Use webpte.debug.profile, or `webpte profile`"


class Verification(enum.Enum):
    """How far a file is checked. webpte always checks all of it."""

    Minimal = 0
    InternalConsistency = 1


class Runtime:
    """Stands in for `executorch.runtime.Runtime`."""

    _instance: Runtime | None = None

    def __init__(self) -> None:
        self.backend_registry = BackendRegistry()  #: names of backends
        self.operator_registry = OperatorRegistry()  #: names of operators

    @classmethod
    def get(cls) -> Runtime:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def load_program(
        self,
        data: Source,
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: str | os.PathLike[str] | None = None,
    ) -> RuntimeProgram:
        """Return a program from a path, bytes or an open file. `data_path` is a .ptd file with constants."""
        if not isinstance(verification, Verification):
            raise wrong_argument(
                "verification", "Verification.Minimal or Verification.InternalConsistency", verification
            )
        if check_bool(enable_etdump, "enable_etdump"):
            raise UnsupportedError(f"enable_etdump: {_NO_DUMP}", code="etdump")
        check_int(debug_buffer_size, "debug_buffer_size", 0)
        check_source(data, "data")
        return RuntimeProgram(load_program(data, () if data_path is None else [check_path(data_path, "data_path")]))


class BackendRegistry:
    """Stands in for `executorch.runtime.BackendRegistry`."""

    @property
    def registered_backend_names(self) -> list[str]:
        return list(BACKENDS)

    def is_available(self, backend_name: str) -> bool:
        return check_str(backend_name, "backend_name", BACKENDS[0]) in BACKENDS


class OperatorRegistry:
    """Stands in for `executorch.runtime.OperatorRegistry`."""

    @property
    def operator_names(self) -> set[str]:
        """Return the ops that have a kernel for the device, by their names in delegates."""
        return set(registered())


class RuntimeProgram:
    """Stands in for `executorch.runtime.Program`."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def method_names(self) -> set[str]:
        return set(self._program.method_names)

    def load_method(self, name: str) -> RuntimeMethod:
        """Return a method that is ready to be executed; the same object every time."""
        return RuntimeMethod(self._program.method(name), self.metadata(name))

    def metadata(self, method_name: str) -> MethodMeta:
        """Return the inputs and outputs of a method, without loading it."""
        name = check_method_name(method_name, self._program.method_names, "method_name")
        return MethodMeta(next(plan for plan in self._program.file.methods if plan.name == name))

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        raise UnsupportedError(f"etdump_path, debug_buffer_path: {_NO_DUMP}", code="etdump")


class RuntimeMethod:
    """Stands in for `executorch.runtime.Method`."""

    def __init__(self, method: Method, metadata: MethodMeta) -> None:
        self._method = method
        self.metadata = metadata  #: of inputs and outputs

    def execute(self, inputs: Sequence[Input] | DLPack) -> list[Value]:
        """Return the outputs as a list of NumPy arrays and Python numbers. An array alone is the only input."""
        ordered = [inputs] if hasattr(inputs, "__dlpack__") else inputs
        return list(self._method.run(ordered_inputs(self._method.name, self._method.inputs, ordered, "inputs")))


class MethodMeta:
    """The inputs and outputs of a method; stands in for `MethodMeta` of ExecuTorch's bindings."""

    def __init__(self, plan: MethodPlan) -> None:
        self._plan = plan

    def name(self) -> str:
        return self._plan.name

    def num_inputs(self) -> int:
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        return len(self._plan.outputs)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        return self._tensor(self._plan.inputs, index, "inputs")

    def output_tensor_meta(self, index: int) -> TensorInfo:
        return self._tensor(self._plan.outputs, index, "outputs")

    def _tensor(self, ids: Sequence[int], index: int, what: str) -> TensorInfo:
        if check_int(index, "index", 0) >= len(ids):
            raise InputError(
                argument="index",
                expected=f"a position among the {len(ids)} {what} of {self._plan.name}",
                got=index,
                code="position",
            )
        value = self._plan.values[ids[index]]
        if not isinstance(value, TensorValue):
            raise InputError(
                f"index {index}: this value among the {what} of {self._plan.name} is a number, not a tensor",
                code="not_a_tensor",
            )
        return TensorInfo(value)

    def __repr__(self) -> str:
        return f"MethodMeta(name={self.name()!r}, num_inputs={self.num_inputs()}, num_outputs={self.num_outputs()})"


class TensorInfo:
    """Shape and dtype of a tensor; stands in for `TensorInfo` of ExecuTorch's bindings."""

    def __init__(self, value: TensorValue) -> None:
        self._value = value

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes; of dynamic dims, the bounds."""
        return self._value.sizes

    def dtype(self) -> int:
        """Return the number of the scalar type, as in the file: 6 is float32, 4 int64."""
        code = self._value.dtype.scalar_type
        assert code is not None  # it was read from a file
        return code

    def is_memory_planned(self) -> bool:
        return self._value.planned

    def nbytes(self) -> int:
        count = self._value.dtype.itemsize
        for size in self._value.sizes:
            count *= size
        return count

    def __repr__(self) -> str:
        return f"TensorInfo(sizes={list(self.sizes())}, dtype={self._value.dtype.short}, nbytes={self.nbytes()})"
