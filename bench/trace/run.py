"""Execute rewritten kernels on the adapter and read their records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import wgpu
from wgpu.backends.wgpu_native._api import ffi, lib

from webpte.device import Gpu, Observer, acquire, adapter_caps
from webpte.device.recording import DispatchCommand, Stage
from webpte.device.timing import one_dispatch_per_pass
from webpte.lowering import Dispatch
from webpte.plan import CallValues, Plan, Schedule
from webpte.runtime import Method
from webpte.wgsl import Kernel, render

from .rewrite import RewriteError, Rewritten, Site, Variable, rewrite

Array = np.ndarray[Any, Any]
MAX_RECORDS = 1 << 21
RECORD_BYTES = 16
HEADER_BYTES = 16
STORAGE_BUFFERS = "max-storage-buffers-per-shader-stage"
MAX_STORAGE_BUFFERS = 16  # of a kernel, with the records
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
RECORD = np.dtype([(name, np.uint32) for name in ("group", "site", "local", "number", "address")])


class TraceError(Exception):
    """A kernel made more records than the buffer holds."""


@dataclass(frozen=True)
class Trace:
    """The accesses of a kernel's workgroups."""

    label: str
    sites: tuple[Site, ...]
    records: Array  # of type RECORD
    outputs: dict[str, Array] = field(default_factory=dict)  # the writable buffers after the dispatch, of `trace`


@contextmanager
def device_for_traces() -> Iterator[Gpu]:
    """Open a device whose kernels may have one more buffer. Programs that are loaded inside the context share it."""
    gpu = acquire({STORAGE_BUFFERS: min(adapter_caps().limits[STORAGE_BUFFERS], MAX_STORAGE_BUFFERS)})
    try:
        yield gpu
    finally:
        gpu.release()


class _Log:
    """The buffer of the records of one dispatch."""

    def __init__(self, gpu: Gpu, max_records: int) -> None:
        self.gpu = gpu
        self.max_records = max_records
        self.nbytes = HEADER_BYTES + max_records * RECORD_BYTES
        self.buffer = gpu.create_buffer("trace", self.nbytes, USAGE & ~wgpu.BufferUsage.UNIFORM)
        self.layout = _layout(gpu, {0: "storage"})
        self.group = gpu.create_bind_group(self.layout, [(self.buffer, 0, self.nbytes)])

    def read(self, label: str) -> Array:
        """Return the records. Raises TraceError if some are missing."""
        count = int(np.frombuffer(self.gpu.read_back(self.buffer, HEADER_BYTES), np.uint32)[0])
        if count > self.max_records:
            raise TraceError(
                f"records: expected at most {self.max_records}, got {count} of {label}. "
                f"Set the number of records to {count}, or trace fewer workgroups."
            )
        data = self.gpu.read_back(self.buffer, HEADER_BYTES + count * RECORD_BYTES)
        words = np.frombuffer(data, np.uint32)[HEADER_BYTES // 4 :].reshape(-1, 4)  # (records, 4)
        records = np.empty(count, RECORD)
        for name, column in zip(("group", "local", "site", "address"), words.T, strict=True):
            records[name] = column
        # An invocation appends in the order of its accesses, so a stable sort keeps them in order.
        order = np.lexsort((records["site"], records["local"], records["group"]))
        first = np.flatnonzero(np.any(np.diff(words[order, :3], axis=0, prepend=np.uint32(0xFFFFFFFF)), axis=1))
        records["number"][order] = np.arange(count) - np.repeat(first, np.diff(first, append=count))
        return records

    def close(self) -> None:
        self.buffer.destroy()


def _layout(gpu: Gpu, kinds: Mapping[int, str]) -> Any:
    return gpu.device.create_bind_group_layout(
        entries=[
            {"binding": binding, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for binding, kind in kinds.items()
        ]
    )


def trace(
    wgsl: str,
    buffers: Mapping[str, Array],
    workgroups: tuple[int, int, int] | int,
    *,
    constants: Mapping[str, float] | None = None,
    traced_workgroups: int | None = None,
    max_records: int = MAX_RECORDS,
    label: str = "kernel",
) -> Trace:
    """Run a kernel with arrays for its storage and uniform variables, and return its accesses and results."""
    rewritten = rewrite(wgsl, traced_workgroups)
    with device_for_traces() as gpu:
        log = _Log(gpu, max_records)
        try:
            outputs = _run(gpu, rewritten, buffers, _grid(workgroups), constants or {}, log)
            return Trace(label, rewritten.sites, log.read(label), outputs)
        finally:
            log.close()


def run_untraced(
    wgsl: str,
    buffers: Mapping[str, Array],
    workgroups: tuple[int, int, int] | int,
    constants: Mapping[str, float] | None = None,
) -> dict[str, Array]:
    """Run a kernel as it is, and return its writable buffers."""
    rewritten = rewrite(wgsl)
    plain = Rewritten(wgsl, (), rewritten.variables, rewritten.group, rewritten.entry_point)
    with device_for_traces() as gpu:
        return _run(gpu, plain, buffers, _grid(workgroups), constants or {}, None)


def _grid(workgroups: tuple[int, int, int] | int) -> tuple[int, int, int]:
    return (workgroups, 1, 1) if isinstance(workgroups, int) else workgroups


def _run(
    gpu: Gpu,
    kernel: Rewritten,
    arrays: Mapping[str, Array],
    grid: tuple[int, int, int],
    constants: Mapping[str, float],
    log: _Log | None,
) -> dict[str, Array]:
    declared = {variable.name: variable for variable in kernel.variables if variable.group >= 0}
    if set(declared) != set(arrays):
        raise ValueError(f"buffers: expected arrays for {sorted(declared)}, got {sorted(arrays)}. Pass one for each.")
    buffers = {name: gpu.create_buffer(name, max(array.nbytes, 16), USAGE) for name, array in arrays.items()}
    try:
        for name, array in arrays.items():
            gpu.write(buffers[name], 0, np.ascontiguousarray(array))
        layouts, groups = [], []
        for number in range(kernel.group):
            members = {v.binding: v for v in declared.values() if v.group == number}
            layouts.append(_layout(gpu, {binding: _buffer_type(v) for binding, v in members.items()}))
            entries = [{"binding": binding, "resource": {"buffer": buffers[v.name]}} for binding, v in members.items()]
            groups.append(gpu.device.create_bind_group(layout=layouts[-1], entries=entries))
        if log is not None:
            layouts.append(log.layout)
            groups.append(log.group)
        pipeline = _pipeline(gpu, kernel, layouts, constants)
        _submit(gpu, pipeline, groups, grid)
        outputs = {}
        for name in (name for name, variable in declared.items() if variable.writable):
            data = np.frombuffer(gpu.read_back(buffers[name], arrays[name].nbytes), arrays[name].dtype)
            outputs[name] = data.reshape(arrays[name].shape)
        return outputs
    finally:
        for buffer in buffers.values():
            buffer.destroy()


def _buffer_type(variable: Variable) -> str:
    if variable.space == "uniform":
        return "uniform"
    return "storage" if variable.writable else "read-only-storage"


def _pipeline(gpu: Gpu, kernel: Rewritten, layouts: Sequence[Any], constants: Mapping[str, float]) -> Any:
    module = gpu.device.create_shader_module(label="trace", code=kernel.text)
    return gpu.device.create_compute_pipeline(
        layout=gpu.device.create_pipeline_layout(bind_group_layouts=list(layouts)),
        compute={"module": module, "entry_point": kernel.entry_point, "constants": dict(constants)},
    )


def _submit(gpu: Gpu, pipeline: Any, groups: Sequence[Any], grid: Sequence[int]) -> None:
    encoder = gpu.device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    for number, group in enumerate(groups):
        if hasattr(group, "_internal"):
            compute.set_bind_group(number, group)
        else:  # a native handle of a prepared dispatch
            lib.wgpuComputePassEncoderSetBindGroup(compute._internal, number, group, 0, ffi.NULL)
    compute.dispatch_workgroups(*grid)
    compute.end()
    with gpu.lock:
        gpu.check()
        gpu.device.queue.submit([encoder.finish()])


# -- programs ---------------------------------------------------------------------------------------------------------


@dataclass
class TracedCall:
    """The traces of a call: one for each kernel, and the reason for each kernel without one."""

    traces: dict[str, Trace] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    dispatches: dict[str, int] = field(default_factory=dict)
    workgroups: dict[str, int] = field(default_factory=dict)  # of the traced dispatch, also those without records
    kinds: dict[str, list[str]] = field(default_factory=dict)  # of each binding's buffer: constant, state, activation
    outputs: Any = None


class _TraceObserver(Observer):
    """Runs the first dispatch of each kernel of a call with a trace, and the others as they are."""

    def __init__(self, call: TracedCall, plan: Plan, name: str, workgroups: int, max_records: int) -> None:
        self.call = call
        self.plan = plan
        self.name = name
        self.workgroups = workgroups
        self.max_records = max_records
        self._dispatches: list[Dispatch] = []  # not submitted yet
        self._labels: dict[Kernel, str] = {}

    def prepared(self, schedule: Schedule, live: CallValues) -> None:
        self._dispatches += schedule.dispatches

    def submit(self, gpu: Gpu, stages: Sequence[Stage]) -> int:
        for stage in (single for several in stages for single in one_dispatch_per_pass(several)):
            if not (stage[1] and self._trace(gpu, self._dispatches.pop(0), stage[1][0])):
                gpu.submit([stage])
        return gpu.submit(())

    def _trace(self, gpu: Gpu, dispatch: Dispatch, command: DispatchCommand) -> bool:
        """Run a dispatch with a trace. Return False if it has to run without."""
        call, kernel = self.call, dispatch.kernel
        seen = kernel in self._labels
        if not seen:
            twins = sum(other.label == kernel.label for other in self._labels)
            self._labels[kernel] = f"{kernel.label} #{twins + 1}" if twins else kernel.label
        label = self._labels[kernel]
        call.dispatches[label] = call.dispatches.get(label, 0) + 1
        if seen or self.name not in label:
            return False
        try:
            rewritten = rewrite(render(kernel), self.workgroups)
        except RewriteError as error:
            call.failures[label] = str(error)
            return False
        log = _Log(gpu, self.max_records)
        try:
            layouts = [gpu.uniform_layout, gpu.storage_layout(kernel.reads, kernel.writes)[0], log.layout]
            pipeline = _pipeline(gpu, rewritten, layouts, {"wg": kernel.workgroup})
            _submit(gpu, pipeline, [command.uniforms, command.storage, log.group], command[3:])
            call.traces[label] = Trace(label, rewritten.sites, log.read(label))
            call.workgroups[label] = dispatch.grid[0] * dispatch.grid[1] * dispatch.grid[2]
            buffers = [self.plan.buffers[self.plan.buffer_of[binding.tensor]] for binding in dispatch.bindings]
            call.kinds[label] = [buffer.kind for buffer in buffers]
        except TraceError as error:
            call.failures[label] = str(error)
        finally:
            log.close()
        return True


def trace_call(
    method: Method, args: Sequence[Any], *, kernel: str = "", workgroups: int = 4, max_records: int = MAX_RECORDS
) -> TracedCall:
    """Run a call of a method that was loaded inside `device_for_traces`; trace kernels whose label contains `kernel`.

    The results are those of a call without a trace, because each traced dispatch runs in full. Only its first
    workgroups are recorded.
    """
    call = TracedCall()
    with method.observed(_TraceObserver(call, method.plan, kernel, workgroups, max_records)):
        call.outputs = method.run(args)
    return call
