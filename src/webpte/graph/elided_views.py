"""Views that the exporter has elided, and tensors in other memory orders.

ExecuTorch removes a `view_copy` of static shape outside delegates: no instruction writes its result, which lies in the
same planned memory as what it is a view of. That is the one thing of the exporter's memory plan that matters here.

A view is created right after its base is written, not where it is read: one reader may be in a branch that is not
taken, and another after it.

Every tensor of a graph is row-major. Callers pass arrays of any strides and get row-major ones; constants in another
order of dims, such as channels last, are reordered when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..container import EValue, MappedFile, MethodPlan, Span, TensorValue

Place = tuple[int, int]  # pool and offset
START = -1  # in place of an instruction: before all of them


@dataclass(frozen=True, slots=True)
class ElidedView:
    """`value` is a view of `base`, to be created after instruction `after`."""

    value: int
    base: int
    after: int


def elided_views(plan: MethodPlan, reads: Sequence[Iterable[int]], writes: Sequence[Iterable[int]]) -> list[ElidedView]:
    """Return every view that is read, by what each instruction reads and writes. Outputs are read last."""
    search = _Search(plan, {value_id for written in writes for value_id in written})
    for index, (read, written) in enumerate(zip(reads, writes, strict=True)):
        search.read(read)
        search.write(written, index)
    search.read(plan.outputs)
    return search.views


class _Search:
    """Tracks the value in each place of planned memory through a method's instructions."""

    def __init__(self, plan: MethodPlan, written: set[int]) -> None:
        self.views: list[ElidedView] = []
        self._values = plan.values
        self._holders: dict[Place, tuple[int, int]] = {}  # a value, and since which instruction
        self._buffers: dict[Place, list[int]] = {}  # written somewhere: if read before, they keep their contents
        stored = {*plan.inputs, *(index for index, value in enumerate(plan.values) if _holds_data(value))}
        self._known = stored | written  # they have their own value, or are views
        self.write(sorted(stored), START)
        for index in sorted(written - stored):
            if (place := self._place(index)) is not None:
                self._buffers.setdefault(place, []).append(index)

    def write(self, ids: Iterable[int], instruction: int) -> None:
        """Record that an instruction writes these values."""
        for index in ids:
            if (place := self._place(index)) is not None:
                self._holders[place] = (index, instruction)

    def read(self, ids: Iterable[int]) -> None:
        """Record that these values are read. Those that no instruction writes are views of the value in their place."""
        for index in ids:
            if index in self._known or (place := self._place(index)) is None:
                continue
            holders = [self._holders[place]] if place in self._holders else []
            candidates = holders or [(buffer, START) for buffer in self._buffers.get(place, [])]
            view = next(
                (ElidedView(index, base, since) for base, since in candidates if self._same_size(base, index)), None
            )
            if view is not None:
                self._known.add(index)
                self.views.append(view)

    def _place(self, index: int) -> Place | None:
        value = self._values[index]
        return value.place if isinstance(value, TensorValue) else None

    def _same_size(self, one: int, other: int) -> bool:
        a, b = self._values[one], self._values[other]
        if not isinstance(a, TensorValue) or not isinstance(b, TensorValue):
            return False
        # In another order of dims the same bytes are other elements.
        same_order = (row_major(a) and row_major(b)) or (a.sizes, a.dim_order) == (b.sizes, b.dim_order)
        return same_order and (a.dtype, a.nbytes) == (b.dtype, b.nbytes)


def _holds_data(value: EValue) -> bool:
    return isinstance(value, TensorValue) and value.mutable


def row_major(value: TensorValue) -> bool:
    return value.dim_order == tuple(range(len(value.sizes)))


def to_row_major(span: Span, value: TensorValue) -> Span:
    """Return the data of a tensor in row-major order, without a copy if the file has it so."""
    if row_major(value) or not span.size:
        return span
    stored = np.frombuffer(span.view(), f"V{value.dtype.itemsize}").reshape([value.sizes[d] for d in value.dim_order])
    ordered = np.ascontiguousarray(stored.transpose(np.argsort(value.dim_order)))
    return Span(MappedFile.from_bytes(f"{span.file.path}, in order", ordered.tobytes(), derived=True), 0, span.size)
