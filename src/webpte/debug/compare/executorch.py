"""Compare a method with the executorch wheel, which runs the same file on the CPU.

The wheel returns the outputs of a method only. For the results of a delegate or a kernel, a copy of the file is changed
so that the method ends after that instruction and has one of its results as its output.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...container import DelegateCall, DType, JumpFalseCall, KernelCall, MappedFile, MethodPlan, TensorValue, find_ends
from ...errors import UnsupportedError
from ...graph import TensorSpec
from ...progress import OnProgress, Progress, ignore
from ...runtime import Program
from ...typing import Array, PathLike
from .capture import MAX_READBACK_BYTES, Capture, Exposed, fused
from .reports import CallReport, Comparison, EndReport, Tolerance, difference

EXECUTORCH = "executorch"
KERNEL_LIBRARIES = ("executorch.kernels.quantized", "executorch.extension.llm.custom_ops.custom_ops")
MAX_RESULTS = 200  # of instructions, each a run of the wheel
Result = tuple[int, int, int]  # instruction, value of the program, value of the exposed graph


class Wheel:
    """A method of a file in the executorch wheel."""

    def __init__(self, path: PathLike, data: Iterable[PathLike], method: MethodPlan) -> None:
        if find_spec("executorch") is None:
            raise UnsupportedError(
                "comparing with executorch requires the package executorch",
                code="missing_package",
                hint="Run pip install 'webpte[export]'.",
            )
        from executorch.extension.pybindings import portable_lib

        for name in KERNEL_LIBRARIES:
            with contextlib.suppress(ImportError, OSError):  # not in every wheel, and few programs need them
                import_module(name)
        files = list(data)
        if len(files) > 1:
            raise UnsupportedError(f"the executorch wheel takes one .ptd file, got {len(files)}", code="several_files")
        self._path = Path(path)
        self._data = str(files[0]) if files else None
        self._load = portable_lib._load_for_executorch
        self._method = method
        self._module = self._open(self._path)

    def _open(self, path: Path) -> Any:
        try:
            return self._load(str(path), self._data)
        except RuntimeError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: RuntimeError) -> UnsupportedError:
        backends = sorted({delegate.backend for delegate in self._method.delegates})
        listed = f" with delegates of {', '.join(backends)}" if backends else ""
        return UnsupportedError(
            f"{self._path.name}: the executorch wheel cannot run {self._method.name}{listed}: {error}",
            code="wheel_failed",
            hint="Use --against reference, or see which backends the wheel has.",
        )

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Call the method. State carries over."""
        return self._call(self._module, arguments)

    def end_at(self, results: Sequence[Result], arguments: Sequence[Any]) -> list[Array]:
        """Return results of instructions, each computed by the method from its initial state."""
        with MappedFile(self._path) as file:
            instructions, outputs = find_ends(file, self._method.name)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "program.pte")
            shutil.copyfile(self._path, copy)
            values = []
            for instruction, value, _ in results:
                with open(copy, "r+b") as changed:
                    for position, numbers in ((instructions, (instruction + 1,)), (outputs, (1, value))):
                        changed.seek(position)
                        changed.write(struct.pack(f"<{len(numbers)}I", *numbers))
                values += self._call(self._open(copy), arguments)
            return values

    def _call(self, module: Any, arguments: Sequence[Any]) -> list[Any]:
        import torch

        try:
            outputs = module.run_method(self._method.name, self._tensors(arguments))
        except RuntimeError as error:
            raise self._refusal(error) from None
        listed = outputs if isinstance(outputs, list | tuple) else [outputs]
        return [_array(output) if isinstance(output, torch.Tensor) else output for output in listed]

    def _tensors(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments as tensors in the memory formats that the program expects."""
        import torch

        tensors: list[Any] = []
        for number, argument in zip(self._method.inputs, arguments, strict=True):
            value = self._method.values[number]
            if isinstance(value, TensorValue):
                array = np.asarray(argument)
                ordered = torch.from_numpy(np.ascontiguousarray(array.transpose(value.dim_order)))
                if value.dtype is DType.BFLOAT16:  # the array has its numbers in f32
                    ordered = ordered.bfloat16()
                back = [value.dim_order.index(d) for d in range(array.ndim)]
                tensors.append(ordered.permute(back))
            else:
                tensors.append(argument)
        return tuple(tensors)


def _array(tensor: Any) -> Array:
    wide = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    array: Array = wide.contiguous().numpy().copy()
    return array


def compare_with_executorch(
    program: Program,
    path: PathLike,
    data: Iterable[PathLike],
    name: str,
    steps: Sequence[Sequence[Any]],
    tolerance: Tolerance | None = None,
    progress: OnProgress = ignore,
) -> Comparison:
    """Run the same method in webpte and in the executorch wheel, on the same inputs.

    Results of delegates and kernels are compared too, each computed from the results before it in its own runtime: the
    first one out of tolerance is where the two diverge. This needs a method without branches; with state, only its
    first call is compared so.
    """
    tolerance = tolerance or Tolerance()
    method = next(plan for plan in program.file.methods if plan.name == name)
    wheel = Wheel(path, data, method)
    report = Comparison(name, EXECUTORCH, tolerance.rtol, tolerance.atol)
    graph = program.graph(name)
    branches = any(isinstance(step, JumpFalseCall) for step in method.instructions)
    exposed = None if branches or not method.outputs else Exposed(graph)
    results = [] if exposed is None else _results(exposed, method)
    ends = tolerance if exposed is None else exposed.end_tolerance(tolerance)
    stateful = any(isinstance(value, TensorSpec) and value.mutable for value in graph.values)
    ordinary = program.method(name, fused)
    for number, arguments in enumerate(steps):
        progress(Progress("compare", number, len(steps), "calls"))
        if exposed is not None and results and (number == 0 or not stateful):
            report.calls += _calls(
                program,
                exposed,
                wheel=wheel,
                method=method,
                results=results,
                step=number,
                arguments=arguments,
                tolerance=ends,
            )
        outputs = zip(ordinary.run(arguments), wheel.run(arguments), strict=True)
        for position, (got, want) in enumerate(outputs):
            if isinstance(got, np.ndarray):
                report.ends.append(EndReport(number, position, EXECUTORCH, difference(got, np.asarray(want), ends)))
    progress(Progress("compare", len(steps), len(steps), "calls"))
    return report


def _results(exposed: Exposed, method: MethodPlan) -> list[Result]:
    """Return tensors that instructions write and others read; of many, some of the delegates' only."""
    results: dict[tuple[int, int], int] = {}
    read = {value_id for watched in exposed.watched for value_id in watched.before} | set(method.outputs)
    for watched in exposed.watched:
        at = watched.call.origin.instruction
        instruction = method.instructions[at]
        arguments = instruction.args if isinstance(instruction, DelegateCall | KernelCall) else ()
        for value_id, holder in watched.after.items():
            if value_id in read and value_id in arguments and isinstance(method.values[value_id], TensorValue):
                results[at, value_id] = holder
    ordered = [(at, value_id, holder) for (at, value_id), holder in sorted(results.items())]
    readable = [result for result in ordered if exposed.readable([result[2]])]
    if len(readable) > MAX_RESULTS:
        readable = [result for result in readable if isinstance(method.instructions[result[0]], DelegateCall)]
    return readable[:: -(-len(readable) // MAX_RESULTS) or 1]


def _calls(
    program: Program,
    exposed: Exposed,
    wheel: Wheel,
    method: MethodPlan,
    results: Sequence[Result],
    step: int,
    arguments: Sequence[Any],
    tolerance: Tolerance,
) -> list[CallReport]:
    """Return a report for each instruction."""
    reports: dict[int, CallReport] = {}
    for group in _groups(exposed, results):
        holders = list(dict.fromkeys(holder for _, _, holder in group))
        seen = next(Capture(program, method.name, exposed, [holders]).run(arguments))
        for (at, value_id, holder), want in zip(group, wheel.end_at(group, arguments), strict=True):
            instruction = method.instructions[at]
            if isinstance(instruction, DelegateCall):
                op, origin = method.delegates[instruction.delegate].backend, f"delegate {instruction.delegate}"
            else:
                op, origin = getattr(instruction, "op", ""), f"instruction {at}"
            report = reports.setdefault(at, CallReport(step, at, op, origin))
            report.outputs[value_id] = difference(seen[holder], want, tolerance)
            report.watch(value_id, seen[holder])
    return list(reports.values())


def _groups(exposed: Exposed, results: Sequence[Result]) -> list[list[Result]]:
    """Return consecutive results that can be read back together."""
    groups: list[list[Result]] = []
    held = 0
    for result in results:
        nbytes = exposed.nbytes(result[2])
        if not groups or held + nbytes > MAX_READBACK_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(result)
        held += nbytes
    return groups
