"""Views that the exporter left out.

ExecuTorch removes a `view_copy` of static shape outside delegates: no instruction writes its result, which lies in the
same planned memory as what it is a view of. That is the one thing of the exporter's memory plan that matters here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..container import MethodPlan, TensorValue

Place = tuple[int, int]  # pool and offset


class Elided:
    """Who holds which place, followed through a method's instructions in order."""

    def __init__(self, plan: MethodPlan, written: Iterable[int]) -> None:
        self._values = plan.values
        self._holders: dict[Place, int] = {}
        self._buffers: dict[Place, list[int]] = {}  # written somewhere: if read before, they keep what they held
        given = {*plan.inputs, *(index for index, value in enumerate(plan.values) if _holds_data(value))}
        self._known = given | set(written)  # they have a value of their own, or were made views
        self.write(sorted(given))
        for index in sorted(self._known - given):
            if (place := self._place(index)) is not None:
                self._buffers.setdefault(place, []).append(index)

    def write(self, ids: Iterable[int]) -> None:
        """These values are written now."""
        for index in ids:
            if (place := self._place(index)) is not None:
                self._holders[place] = index

    def bases(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """(view, base) of those among these values that nobody writes; each is named once, before its first use."""
        found = []
        for index in ids:
            if index in self._known or (place := self._place(index)) is None:
                continue
            holder = self._holders.get(place)
            candidates = self._buffers.get(place, []) if holder is None else [holder]
            base = next((c for c in candidates if self._same_size(c, index)), None)
            if base is not None:
                self._known.add(index)
                found.append((index, base))
        return found

    def _place(self, index: int) -> Place | None:
        value = self._values[index]
        return value.place if isinstance(value, TensorValue) else None

    def _same_size(self, one: int, other: int) -> bool:
        a, b = self._values[one], self._values[other]
        return isinstance(a, TensorValue) and isinstance(b, TensorValue) and (a.dtype, a.nbytes) == (b.dtype, b.nbytes)


def _holds_data(value: object) -> bool:
    return isinstance(value, TensorValue) and value.mutable
