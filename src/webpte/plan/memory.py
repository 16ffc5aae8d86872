"""Buffers: where each tensor is stored, and which tensors share a buffer.

The exporter's memory plan is ignored. Liveness counts calls in execution order, inclusive at both ends, over roots of
aliases. Tensors with disjoint lifetimes share a whole buffer, because WebGPU forbids binding one buffer read-only and
read-write in the same dispatch even at disjoint ranges. A tensor always begins at the start of its buffer.

Lifetimes are those of one execution. `MemoryPlan.unmodified_uploads` lists the inputs that are still in place
for a second execution in the same submit; the others must be uploaded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import GraphError
from ..graph import Call, Constant, DType, Graph, TensorSpec
from ..lowering import Binding, MethodContext, stored_bytes
from .segments import Flow, PlanSegment

PADDING = 16  # vec4 tails stay inside the buffer


def padded(nbytes: int) -> int:
    return max(PADDING, -(-nbytes // PADDING) * PADDING)


@dataclass(frozen=True, slots=True)
class BufferFill:
    """The constant that a buffer is initialized with."""

    constant: Constant
    dtype: DType  # as stored on the device


@dataclass(frozen=True, slots=True)
class Buffer:
    """One GPU buffer. `kind` is constant (never written), state (outlives a call) or activation (shared)."""

    nbytes: int
    kind: str
    tensors: tuple[int, ...]
    fill: BufferFill | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """The storage of a tensor, which its aliases share, from its first to its last use."""

    id: int
    nbytes: int
    first: int
    last: int


def share_buffers(roots: Iterable[Allocation]) -> list[tuple[int, list[Allocation]]]:
    """Pack allocations into buffers, largest first, each into the smallest free buffer that fits."""
    ordered = sorted(roots, key=lambda r: (-r.nbytes, r.first, r.id))
    moments = sorted({moment for root in ordered for moment in (root.first, root.last)})
    place = {moment: number for number, moment in enumerate(moments)}
    busy = LivenessTree(len(moments))
    buffers: list[tuple[int, list[Allocation]]] = []
    for root in ordered:
        first, last = place[root.first], place[root.last]
        free = ~busy.between(first, last) & ((1 << len(buffers)) - 1)
        if free:
            # Buffers were opened in descending size, so the last that fits is the tightest.
            number = free.bit_length() - 1
            buffers[number][1].append(root)
        else:
            number = len(buffers)
            buffers.append((root.nbytes, [root]))
        busy.take(number, first, last)
    return buffers


class LivenessTree:
    """The buffers that are in use at each moment: a segment tree whose nodes are sets of buffers, as integers."""

    def __init__(self, moments: int) -> None:
        self._size = 1 << max(moments - 1, 0).bit_length()
        self._all = [0] * (2 * self._size)  # busy at every moment of the node
        self._any = [0] * (2 * self._size)  # busy at some moment of it

    def take(self, number: int, first: int, last: int) -> None:
        """Mark a buffer as in use from `first` to `last`."""
        bit = 1 << number
        for node in self._cover(first, last):
            self._all[node] |= bit
            while node:
                self._any[node] |= bit
                node >>= 1

    def between(self, first: int, last: int) -> int:
        """Return the buffers that are in use at some moment from `first` to `last`."""
        mask = 0
        for node in self._cover(first, last):
            mask |= self._any[node]
            while node := node >> 1:
                mask |= self._all[node]
        return mask

    def _cover(self, first: int, last: int) -> list[int]:
        """Return the smallest set of nodes that covers these moments."""
        nodes = []
        low, high = first + self._size, last + self._size + 1
        while low < high:
            if low & 1:
                nodes.append(low)
                low += 1
            if high & 1:
                high -= 1
                nodes.append(high)
            low, high = low >> 1, high >> 1
        return nodes


def resolve_aliases(aliases: Mapping[int, int]) -> dict[int, int]:
    """Return the root of each alias."""
    roots: dict[int, int] = {}
    for alias in aliases:
        chain, seen = [alias], {alias}
        while (source := aliases.get(chain[-1])) is not None and source not in roots:
            if source in seen:
                raise GraphError(f"value {source} is a view of itself, through {len(chain)} others", code="alias_cycle")
            chain.append(source)
            seen.add(source)
        root = chain[-1] if source is None else roots[source]
        roots.update(dict.fromkeys(chain if source is not None else chain[:-1], root))
    return roots


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The buffer of every tensor, and the uploads before each segment."""

    buffers: tuple[Buffer, ...]
    buffer_of: dict[int, int]  # tensor id (aliases included) -> buffer
    uploads: dict[PlanSegment, tuple[int, ...]]
    unmodified_uploads: frozenset[int]  # uploaded tensors that are still there when the method has run


def plan_memory(graph: Graph, flow: Flow, touched: Iterable[Binding], method: MethodContext) -> MemoryPlan:
    """Decide buffers after every call has been lowered."""
    return _Assignment(graph, flow, touched, method).run()


class _Assignment:
    """Assigns buffers to the tensors of lowered calls."""

    def __init__(self, graph: Graph, flow: Flow, touched: Iterable[Binding], method: MethodContext) -> None:
        self.graph = graph
        self.flow = flow
        self.touched = {binding.tensor for binding in touched}
        self.written = flow.mutated.union(*(call.outs for call in graph.calls))
        self.roots = resolve_aliases(method.aliases)
        self.materialized = method.materialized
        self.scratch_of: dict[int, list[int]] = {}  # call -> its scratch tensors
        self.specs: dict[int, TensorSpec] = {}  # of scratch tensors, which are not in the graph
        for (owner, _), tensor in method.scratch_tensors.items():
            self.scratch_of.setdefault(owner, []).append(tensor.id)
            self.specs[tensor.id] = tensor.spec
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def root(self, value_id: int) -> int:
        return self.roots.get(value_id, value_id)

    def run(self) -> MemoryPlan:
        end = self._lifetimes()
        reads = {self.root(r) for segment in self.flow.segments for r in segment.readbacks}
        needed = {self.root(t) for t in self.touched} | reads
        buffers: list[Buffer] = []
        place: dict[int, int] = {}
        pooled: dict[object, int] = {}
        activations: list[Allocation] = []
        for value_id in sorted(needed):
            constant = self._constant(value_id)
            if constant is not None:
                self._place_constant(value_id, constant, buffers, place, pooled)
            elif value_id < len(self.graph.values) and self.graph.tensor(value_id).mutable:
                place[value_id] = len(buffers)
                buffers.append(Buffer(self._nbytes(value_id), "state", (value_id,)))
            elif value_id in self.first:
                lifetime = (0, end) if value_id in self.flow.shared else (self.first[value_id], self.last[value_id])
                activations.append(Allocation(value_id, self._nbytes(value_id), *lifetime))
        for nbytes, allocations in share_buffers(activations):
            for allocation in allocations:
                place[allocation.id] = len(buffers)
            buffers.append(Buffer(nbytes, "activation", tuple(t.id for t in allocations)))
        uploads = self._uploads()
        unmodified = frozenset(
            v for values in uploads.values() for v in values if self._is_unmodified(v, buffers[place[v]])
        )
        for alias, root in self.roots.items():
            if root in place:
                place[alias] = place[root]
        return MemoryPlan(tuple(buffers), place, uploads, unmodified)

    def _is_unmodified(self, value_id: int, buffer: Buffer) -> bool:
        """Return whether an uploaded tensor is unchanged after the method: no other tensor uses its buffer."""
        return buffer.tensors == (value_id,) and value_id not in self.written

    def _lifetimes(self) -> int:
        position = 0
        for block in self.flow.blocks:
            for stage in block.stages:
                position += 1  # uploads
                for index in stage.steps:
                    position += 1
                    call = self.graph.steps[index]
                    assert isinstance(call, Call)
                    scratch = self.scratch_of.get(index, ())
                    for value_id in (*self.graph.flatten(call.args), *call.outs, *scratch):
                        self._touch(value_id, position)
                position += 1  # readback
                if isinstance(stage, PlanSegment):
                    for value_id in stage.readbacks:
                        self._touch(value_id, position)
        for value_id in self.graph.inputs:  # all of them are uploaded before the first call
            self.first[value_id] = 0
        return position

    def _touch(self, value_id: int, position: int) -> None:
        root = self.root(value_id)
        self.first.setdefault(root, position)
        self.last[root] = position

    def _constant(self, value_id: int) -> Constant | None:
        if value_id in self.materialized:
            return self.materialized[value_id]
        if value_id >= len(self.graph.values):
            return None
        return self.graph.tensor(value_id).constant

    def _stored(self, value_id: int) -> bool:
        inside = value_id < len(self.graph.values)
        return value_id in self.materialized or (inside and self.graph.tensor(value_id).stored)

    def _nbytes(self, value_id: int) -> int:
        spec = self.specs.get(value_id) or self.graph.tensor(value_id)
        return padded(stored_bytes(spec.dtype, spec.dims))

    def _place_constant(
        self, value_id: int, constant: Constant, buffers: list[Buffer], place: dict[int, int], pooled: dict[object, int]
    ) -> None:
        spec = self.graph.tensor(value_id)
        state = value_id in self.flow.mutated
        identity = (constant.identity, spec.dtype)
        if not state and identity in pooled:
            number = pooled[identity]
            buffers[number] = Buffer(
                buffers[number].nbytes, "constant", (*buffers[number].tensors, value_id), buffers[number].fill
            )
        else:
            number = len(buffers)
            kind = "state" if state else "constant"
            buffers.append(Buffer(self._nbytes(value_id), kind, (value_id,), BufferFill(constant, spec.dtype)))
            if not state:
                pooled[identity] = number
        place[value_id] = number

    def _uploads(self) -> dict[PlanSegment, tuple[int, ...]]:
        """Return the tensors that are uploaded before each segment: before the first of its block that binds them."""
        computed = {o for segment in self.flow.segments for i in segment.steps for o in self._outs(i)}
        computed -= set(self.graph.inputs)  # an input may be overwritten, but not before it was uploaded
        uploads: dict[PlanSegment, tuple[int, ...]] = {}
        for block in self.flow.blocks:
            present: set[int] = set()
            for stage in block.stages:
                if not isinstance(stage, PlanSegment):
                    continue
                bound = {self.root(v) for i in stage.steps for v in self._operands(i) if v in self.touched}
                bound |= {self.root(v) for v in stage.readbacks}
                missing = [v for v in sorted(bound - computed - present) if v in self.first and not self._stored(v)]
                uploads[stage] = tuple(v for v in missing if v < len(self.graph.values))
                present.update(missing)
        return uploads

    def _outs(self, index: int) -> tuple[int, ...]:
        call = self.graph.steps[index]
        assert isinstance(call, Call)
        return call.outs

    def _operands(self, index: int) -> tuple[int, ...]:
        call = self.graph.steps[index]
        assert isinstance(call, Call)
        return (*self.graph.flatten(call.args), *call.outs)
