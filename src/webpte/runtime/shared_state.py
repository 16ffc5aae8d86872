"""Buffers that several methods of a program share, each of which has a copy: who has the latest."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from ..graph import DType
from ..plan import Plan
from .method_state import MethodState


class Buffer(NamedTuple):
    """What makes two buffers of two methods the same one. Their shapes may differ: one may be a view."""

    place: tuple[int, int]  # pool and offset in the exporter's memory plan
    dtype: DType
    nbytes: int


class Copy(NamedTuple):
    """A method's own copy of it."""

    buffer: Buffer
    value_id: int
    dims: tuple[int, ...]


class SharedState:
    """Keeps the copies of a program's methods in step. They share a lock: a call of one reads the state of another."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._latest: dict[Buffer, tuple[MethodState, int]] = {}

    def share_of(self, plan: Plan) -> Share | None:
        """What a method has part in, if anything."""
        copies = _copies(plan)
        return Share(self, copies) if copies else None

    def bring(self, state: MethodState, copies: Sequence[Copy]) -> None:
        """Let a method have the latest of what it shares, and be the one that has it: it may write it now."""
        stale = {}
        near: dict[MethodState, list[tuple[int, int]]] = {}
        for copy in copies:
            holder, theirs = self._latest.get(copy.buffer, (state, copy.value_id))
            if holder is state:
                continue
            if state.alike(copy.value_id, holder, theirs):
                near.setdefault(holder, []).append((theirs, copy.value_id))
            else:
                stale[copy.value_id] = holder.array(theirs).reshape(copy.dims)
        if stale:
            state.keep(stale)
        for holder, pairs in near.items():
            state.take(holder, pairs)
        self._latest.update({copy.buffer: (state, copy.value_id) for copy in copies})

    def forget(self, state: MethodState) -> None:
        """What a method had is gone."""
        self._latest = {buffer: held for buffer, held in self._latest.items() if held[0] is not state}


class Share(NamedTuple):
    """One method's part in it."""

    whole: SharedState
    copies: tuple[Copy, ...]

    def bring(self, state: MethodState) -> None:
        self.whole.bring(state, self.copies)

    def forget(self, state: MethodState) -> None:
        self.whole.forget(state)


def _copies(plan: Plan) -> tuple[Copy, ...]:
    """A method's copies of what others may have too."""
    copies = []
    for value_id in sorted(plan.flow.state):
        spec = plan.graph.tensor(value_id)
        if spec.shared is not None:
            dtype, nbytes = spec.host_dtype, plan.stored_bytes(value_id)
            copies.append(Copy(Buffer(spec.shared, dtype, nbytes), value_id, spec.dims))
    return tuple(copies)
