"""Schedules as JSON: dispatches by number of their kernel, buffers and parameters; terms as graph.term_json has."""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import FormatError
from ..graph import LIVE_SCALARS, Graph, SymBool, SymInt, TensorSpec
from ..graph.expressions import (
    Extreme,
    Leaf,
    ScalarInput,
    Term,
    expression_from_json,
    is_integer,
    leaves,
    number_from_json,
    number_to_json,
    source_of,
    term_from_json,
    term_to_json,
)
from ..lowering import Binding, Dispatch, Guard, stored_bytes
from ..lowering.context import FLOATING, OFFSET_ALIGNMENT
from ..wgsl import BROWSER_LIMITS, Kernel
from ..wgsl.kernel import SYM_SLOTS
from ..wgsl.uniforms import SLOT_BYTES
from .memory import Buffer, padded
from .plan import Plan
from .schedules import Dims, DispatchWork, Key, LoweredCall, Schedule
from .segments import PlanSegment
from .value_json import json_bool, json_field, json_int, json_ints, json_list, json_numbered, json_str

T = TypeVar("T")
GRID = BROWSER_LIMITS["max-compute-workgroups-per-dimension"]


class Numbered(Generic[T]):
    """Numbers items in the order of their first use."""

    def __init__(self) -> None:
        self.items: dict[T, int] = {}

    def __call__(self, item: T) -> int:
        return self.items.setdefault(item, len(self.items))


# -- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writing:
    """The numbered items of schedules that are written."""

    plan: Plan
    kernels: Numbered[Kernel]
    blocks: Numbered[bytes]

    def schedule(self, key: Key, schedule: Schedule) -> dict[str, Any]:
        segment = schedule.segment
        dims, scalars = key[: len(segment.tensors)], key[len(segment.tensors) :]
        return {
            "segment": self.plan.flow.segments.index(segment),
            "dims": [list(sizes) for sizes in dims],  # type: ignore[call-overload]
            "scalars": [term_to_json(term) for term in scalars],  # type: ignore[arg-type]
            "specializations": [
                [term_to_json(term), number_to_json(number)] for term, number in schedule.specializations
            ],
            "guards": [_guard_to_json(guard) for guard in schedule.guards],
            "slots": [[slot, term_to_json(term)] for slot, term in schedule.slots],
            "dispatches": [self._dispatch(dispatch) for dispatch in schedule.dispatches],
            "work": [list(work) for work in schedule.work],
            "result_dims": {str(v): list(sizes) for v, sizes in schedule.result_dims.items()},
            "result_scalars": {str(v): term_to_json(term) for v, term in schedule.result_scalars.items()},
        }

    def _dispatch(self, dispatch: Dispatch) -> list[Any]:
        ranges = [[self.plan.buffer_of[b.tensor], b.offset, self.plan.bound_bytes(b)] for b in dispatch.bindings]
        return [self.kernels(dispatch.kernel), ranges, self.blocks(dispatch.params), list(dispatch.grid)]


def _guard_to_json(guard: Guard) -> dict[str, Any]:
    return {
        "term": term_to_json(guard.term),
        "low": None if guard.low is None else number_to_json(guard.low),
        "high": None if guard.high is None else number_to_json(guard.high),
        "where": guard.where,
        "message": guard.message,
        "format_args": [term_to_json(term) for term in guard.format_args],
        "overflow": guard.overflow,
    }


def block_to_json(block: bytes) -> str:
    return base64.b64encode(block).decode()


# -- reading ---------------------------------------------------------------------------------------------------------


def block_from_json(data: Any) -> bytes:
    try:
        block = base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise FormatError(f"{ascii(data)[:60]} is not a parameter block", code="parameter_block") from None
    if not 0 < len(block) <= SLOT_BYTES or len(block) % 4:
        raise FormatError(
            f"a parameter block has {len(block)} bytes, not a multiple of 4 up to {SLOT_BYTES}", code="parameter_block"
        )
    return block


@dataclass(frozen=True)
class ScheduleReader:
    """Reads schedules, and checks them against the numbered items of the plan."""

    graph: Graph
    segments: Sequence[PlanSegment]
    buffers: Sequence[Buffer]
    value_buffers: Mapping[int, int]  # of values that are copied
    stand_ins: int  # buffer n is bound as tensor `stand_ins` + n
    kernels: Sequence[Kernel]
    blocks: Sequence[bytes]

    def schedule(self, data: Any) -> tuple[Key, Schedule]:
        segment = self.segments[json_int(json_field(data, "segment"), "segment", high=len(self.segments) - 1)]
        sizes = json_list(json_field(data, "dims"), "dims that enter a segment", len(segment.tensors))
        scalars = json_list(json_field(data, "scalars"), "scalars that enter a segment", len(segment.scalars))
        dims = [self._dims(v, item) for v, item in zip(segment.tensors, sizes, strict=True)]
        result_dims = {v: self._dims(v, sizes) for v, sizes in self._named(data, "result_dims")}
        scalar_terms = {v: self._term(term) for v, term in self._named(data, "result_scalars")}
        self._refuse_reads(segment, dict(zip(segment.tensors, dims, strict=True)) | result_dims)
        if wrong := [v for v in scalar_terms if not isinstance(self.graph.values[v], LIVE_SCALARS)]:
            raise FormatError(f"values {wrong} are not scalars that a segment computes")
        dispatches = tuple(self._dispatch(item) for item in json_list(json_field(data, "dispatches"), "dispatches"))
        schedule = Schedule(
            segment=segment,
            calls=(LoweredCall(segment.steps[0], dispatches),),
            dims=result_dims,
            result_dims=result_dims,
            scalars=scalar_terms,
            result_scalars=scalar_terms,
            specializations=tuple(
                self._specialization(item) for item in json_list(json_field(data, "specializations"), "specializations")
            ),
            slots=tuple(self._slot(item) for item in json_list(json_field(data, "slots"), "slots")),
            guards=tuple(self._guard(item) for item in json_list(json_field(data, "guards"), "guards")),
            work=self._work(data.get("work", []), len(dispatches)),
        )
        return (*dims, *(self._term(term) for term in scalars)), schedule

    @staticmethod
    def _work(data: Any, dispatches: int) -> tuple[DispatchWork, ...]:
        """Return the work of every dispatch; nothing if it is not known."""
        items = json_list(data, "the work of dispatches", dispatches) if data else []
        return tuple(DispatchWork(*json_ints(json_list(item, "the work of a dispatch", 2), "work")) for item in items)

    def _refuse_reads(self, segment: PlanSegment, dims: Mapping[int, Dims]) -> None:
        """Raise FormatError if results would be read beyond their buffers."""
        if unknown := [v for v in segment.readbacks if v not in dims]:
            raise FormatError(
                f"values {unknown} are read back, but a schedule does not have their shapes", code="missing_shape"
            )
        for value_id in segment.readbacks:
            number = self.value_buffers[value_id]
            if padded(stored_bytes(self.graph.tensor(value_id).dtype, dims[value_id])) > self.buffers[number].nbytes:
                raise FormatError(f"value {value_id} of shape {list(dims[value_id])} overflows buffer {number}")

    def _named(self, data: Any, name: str) -> Iterator[tuple[int, Any]]:
        yield from json_numbered(json_field(data, name), name, len(self.graph.values) - 1).items()

    def _dims(self, value_id: int, data: Any) -> Dims:
        bound = self.graph.tensor(value_id).dims
        dims = json_ints(json_list(data, f"the shape of value {value_id}", len(bound)), "a dim")
        if any(size > most for size, most in zip(dims, bound, strict=True)):
            raise FormatError(f"value {value_id} would have shape {list(dims)}, outside its bound {list(bound)}")
        return dims

    def _term(self, data: Any) -> Term:
        term: Term = self._believed(term_from_json(data))
        return term

    def _believed(self, term: Any) -> Any:
        """Return the term, after a check that its elements and scalars exist."""
        for leaf in leaves(term):
            source = source_of(leaf)
            if not 0 <= source < len(self.graph.values) or not self._leaf(leaf, self.graph.values[source]):
                raise FormatError(f"a term uses {leaf}, which does not exist", code="unknown_value")
        return term

    @staticmethod
    def _leaf(leaf: Leaf, value: object) -> bool:
        if isinstance(leaf, ScalarInput):
            return isinstance(value, LIVE_SCALARS) and leaf.is_integer == isinstance(value, (SymInt, SymBool))
        if not isinstance(value, TensorSpec) or leaf.is_integer != (value.host_dtype not in FLOATING):
            return False
        if isinstance(leaf, Extreme):
            return True
        sizes = zip(leaf.index, value.dims, strict=False)
        return len(leaf.index) == len(value.dims) and all(-size <= at < size for at, size in sizes)

    def _specialization(self, data: Any) -> Any:
        term, number = json_list(data, "a specialization", 2)
        return self._believed(expression_from_json(term)), number_from_json(number)

    def _slot(self, data: Any) -> Any:
        slot, term = json_list(data, "a slot", 2)
        expression = self._believed(expression_from_json(term))
        if not is_integer(expression):
            raise FormatError(f"{expression} is not an integer that a kernel can read")
        return json_int(slot, "a slot", high=SYM_SLOTS - 1), expression

    def _guard(self, data: Any) -> Guard:
        low, high = (None if json_field(data, at) is None else number_from_json(data[at]) for at in ("low", "high"))
        format_args = tuple(
            self._term(term) for term in json_list(json_field(data, "format_args"), "format_args of a guard")
        )
        message = json_str(json_field(data, "message"), "the message of a guard")
        if any(int(named) > len(format_args) for named in re.findall(r"\{(\d)\}", message)):
            raise FormatError(
                f"a guard's message names more than {len(format_args)} of its format_args", code="guard_message"
            )
        where, overflow = (
            json_str(json_field(data, "where"), "where"),
            json_bool(json_field(data, "overflow"), "overflow"),
        )
        return Guard(
            term=self._term(json_field(data, "term")),
            low=low,
            high=high,
            where=where,
            message=message,
            format_args=format_args,
            overflow=overflow,
        )

    def _dispatch(self, data: Any) -> Dispatch:
        kernel_number, ranges, block, grid = json_list(data, "a dispatch", 4)
        kernel = self.kernels[json_int(kernel_number, "the kernel of a dispatch", high=len(self.kernels) - 1)]
        bindings = [self._range(item) for item in json_list(ranges, "bindings", kernel.reads + kernel.writes)]
        self._refuse_overlaps(bindings[: kernel.reads], bindings[kernel.reads :], kernel)
        x, y, z = json_ints(json_list(grid, "a grid", 3), "a size of a grid", 1, GRID)
        return Dispatch(
            kernel,
            tuple(Binding(self.stand_ins + number, offset, nbytes) for number, offset, nbytes in bindings),
            self.blocks[json_int(block, "the parameters of a dispatch", high=len(self.blocks) - 1)],
            (x, y, z),
        )

    def _range(self, data: Any) -> tuple[int, int, int]:
        number, offset, nbytes = json_ints(json_list(data, "a binding", 3), "a number of a binding")
        json_int(number, "the buffer of a binding", high=len(self.buffers) - 1)
        size = self.buffers[number].nbytes
        if offset % OFFSET_ALIGNMENT or nbytes % 4 or nbytes == 0 or offset + nbytes > size:
            raise FormatError(
                f"bytes {offset} to {offset + nbytes} of buffer {number}, of {size}, cannot be bound",
                code="binding_out_of_bounds",
            )
        return number, offset, nbytes

    def _refuse_overlaps(
        self, reads: list[tuple[int, int, int]], writes: list[tuple[int, int, int]], kernel: Kernel
    ) -> None:
        written = {number for number, _, _ in writes}
        if both := written.intersection(number for number, _, _ in reads):
            raise FormatError(f"{kernel.label} would read and write buffers {sorted(both)}", code="aliased_buffers")
        if wrong := sorted(number for number in written if self.buffers[number].kind == "constant"):
            raise FormatError(f"{kernel.label} would write the constants in buffers {wrong}")
        ordered = sorted(writes)
        for (number, offset, nbytes), (other, start, _) in itertools.pairwise(ordered):
            if number == other and start < offset + nbytes:
                raise FormatError(f"{kernel.label} would write byte {start} of buffer {number} through two bindings")
