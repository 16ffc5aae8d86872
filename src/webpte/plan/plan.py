"""The Plan: a frozen, printable account of how a method will run on a device with given capabilities."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Call, Constant, Graph, TensorSpec
from ..lowering import WHOLE, Binding, stored_bytes
from ..wgsl import Kernel
from .memory import Buffer, padded
from .segments import Flow, HostCalls, PlanSegment

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """A temporary tensor of a call, which is not in the graph."""

    step: int
    spec: TensorSpec


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All decisions about a method that precede its GPU objects, as plain values."""

    graph: Graph
    flow: Flow
    buffers: tuple[Buffer, ...]
    buffer_of: dict[int, int]  # tensor id (aliases included) -> buffer
    uploads: dict[PlanSegment, tuple[int, ...]]  # tensors copied to the device before a segment
    unmodified_uploads: frozenset[int]  # those that are unchanged when the method has run
    kernels: tuple[Kernel, ...]
    parameter_blocks: int  # different ones, at the shapes that were lowered here
    dynamic_dims: dict[int, tuple[bool, ...]]  # of inputs, and of outputs if known: which dims may vary
    passes: dict[str, int]  # rewrites applied to the graph, each with the calls it saved
    aliases: dict[int, int]  # view -> its base
    materialized: dict[int, Constant]  # results of calls that are filled once, from the file
    scratch: dict[int, Scratch]
    checks: dict[int, str]  # tensors that must be zero after a submit, such as overflow flags -> the error message
    bindings: frozenset[Binding]  # what some dispatch may bind, at the shapes that were lowered here
    binding_limit: int  # the most that the device binds: a larger buffer is bound in parts
    subgroup: int  # invocations that every subgroup of the device has at least; kernels that use them count on it

    @functools.cached_property
    def host_state(self) -> tuple[int, ...]:
        """Return the state that no kernel of the device uses. The host stores it in the dtypes the program declares."""
        return tuple(sorted(v for v in self.flow.state if v not in self.buffer_of))

    @functools.cached_property
    def limits(self) -> dict[str, int]:
        """Return the device limits that this plan needs."""
        largest = max((b.nbytes for b in self.buffers), default=0)
        return {
            "max-storage-buffer-binding-size": max(map(self.bound_bytes, self.bindings), default=0),
            "max-buffer-size": max(largest, self.staging_bytes),
            "max-storage-buffers-per-shader-stage": max((k.reads + k.writes for k in self.kernels), default=0),
            "max-compute-invocations-per-workgroup": max((k.workgroup for k in self.kernels), default=0),
            "max-compute-workgroup-size-x": max((k.workgroup for k in self.kernels), default=0),
        }

    @property
    def cpu_calls(self) -> dict[str, int]:
        """Return the number of calls that run on the CPU, by name."""
        counts: dict[str, int] = {}
        for block in self.flow.blocks:
            for stage in block.stages:
                if isinstance(stage, HostCalls):
                    for index in stage.steps:
                        counts[self._step_name(index)] = counts.get(self._step_name(index), 0) + 1
        return counts

    @property
    def staging_bytes(self) -> int:
        """Return the maximum bytes that a segment reads back."""
        return max((read_bytes(self.graph, s) for s in self.flow.segments), default=0)

    def bound_bytes(self, binding: Binding) -> int:
        """Return the bytes of a binding: those of the tensor if the device cannot bind the whole buffer."""
        if binding.nbytes != WHOLE:
            return binding.nbytes
        buffer = self.buffers[self.buffer_of[binding.tensor]]
        if buffer.nbytes <= self.binding_limit:
            return buffer.nbytes
        scratch = self.scratch.get(binding.tensor)
        spec = scratch.spec if scratch is not None else self.graph.tensor(binding.tensor)
        return min(padded(nbytes := stored_bytes(spec.dtype, spec.dims)), max(nbytes, self.binding_limit))

    def bound(self, binding: Binding) -> Binding:
        """Return the binding, with its size if that is not the whole buffer."""
        buffer = self.buffers[self.buffer_of[binding.tensor]]
        nbytes = self.bound_bytes(binding)
        return binding if nbytes == buffer.nbytes else binding._replace(nbytes=nbytes)

    def stored_bytes(self, value_id: int) -> int:
        """Return the bytes of a tensor on the device, at its bound."""
        return bytes_at_bound(self.graph, value_id)

    @property
    def input_bounds(self) -> dict[int, Dims]:
        """Return the largest dims of the tensor inputs."""
        return {i: self.graph.tensor(i).dims for i in self.graph.inputs if i in self.dynamic_dims}

    def extents(self) -> list[dict[int, Dims]]:
        """Return the largest dims of the tensor inputs and, if any may vary, the smallest."""
        largest = self.input_bounds
        return [largest, *(s for s in [shrunk(largest, self.dynamic_dims, 1)] if s != largest)]

    def bytes_by_kind(self) -> dict[str, int]:
        totals = {"constant": 0, "state": 0, "activation": 0}
        for buffer in self.buffers:
            totals[buffer.kind] += buffer.nbytes
        return totals

    def __str__(self) -> str:
        lines = [f"plan of {self.graph.name}"]
        for number, block in enumerate(self.flow.blocks):
            for stage in block.stages:
                where = "host" if isinstance(stage, HostCalls) else "submit"
                names = [self._step_name(i) for i in stage.steps]
                lines.append(f"  block {number} {where}: {len(names)} calls: {', '.join(names)}")
            if block.condition is not None:
                lines.append(f"  block {number}: if value {block.condition} is false go to block {block.target}")
        for number, buffer in enumerate(self.buffers):
            tensors = ", ".join(f"%{t}" for t in buffer.tensors)
            lines.append(f"  buffer {number}: {buffer.kind} {buffer.nbytes} bytes: {tensors}")
        return "\n".join(lines)

    def _step_name(self, index: int) -> str:
        step = self.graph.steps[index]
        return step.name if isinstance(step, Call) else "jump"


def shrunk(bounds: dict[int, Dims], dynamic: Mapping[int, tuple[bool, ...]], size: int) -> dict[int, Dims]:
    """Return input dims with dynamic ones reduced to at most `size`."""
    return {
        i: tuple(min(size, d) if may else d for d, may in zip(dims, dynamic[i], strict=True))
        for i, dims in bounds.items()
    }


def bytes_at_bound(graph: Graph, value_id: int) -> int:
    spec = graph.tensor(value_id)
    return stored_bytes(spec.dtype, spec.dims)


def read_bytes(graph: Graph, segment: PlanSegment) -> int:
    """Return the maximum bytes that a segment reads back."""
    return sum(padded(bytes_at_bound(graph, t)) for t in segment.readbacks)
