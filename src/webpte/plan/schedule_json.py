"""Schedules as JSON: dispatches by number of their kernel and parameter block, terms as graph.term_json has them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ..errors import FormatError
from ..graph.term_json import expression_from_json, term_from_json, term_to_json
from ..lowering import Binding, Dispatch, Guard
from ..wgsl import Kernel
from .schedules import Dims, Key, LoweredCall, Schedule
from .segments import Segment

T = TypeVar("T")


class Numbered(Generic[T]):
    """Things by the order in which they were first named."""

    def __init__(self) -> None:
        self.items: dict[T, int] = {}

    def __call__(self, item: T) -> int:
        return self.items.setdefault(item, len(self.items))


def schedule_to_json(
    key: Key,
    schedule: Schedule,
    segment: int,
    kernels: Numbered[Kernel],
    blocks: Numbered[bytes],
    bound: Callable[[Binding], Binding],
) -> dict[str, Any]:
    return {
        "segment": segment,
        "key": [list(part) if isinstance(part, tuple) else {"term": term_to_json(part)} for part in key],  # type: ignore[arg-type]
        "decisions": [[term_to_json(term), number] for term, number in schedule.decisions],
        "slots": [[slot, term_to_json(term)] for slot, term in schedule.slots],
        "guards": [_guard_to_json(guard) for guard in schedule.guards],
        "left": _dims_to_json(schedule.left),
        "scalars": {str(v): term_to_json(term) for v, term in schedule.left_scalars.items()},
        "calls": [
            [call.step, [_dispatch_to_json(dispatch, kernels, blocks, bound) for dispatch in call.dispatches]]
            for call in schedule.calls
            if call.dispatches
        ],
    }


def _dispatch_to_json(
    dispatch: Dispatch, kernels: Numbered[Kernel], blocks: Numbered[bytes], bound: Callable[[Binding], Binding]
) -> list[Any]:
    bindings = [list(bound(binding)) for binding in dispatch.bindings]
    return [kernels(dispatch.kernel), bindings, blocks(dispatch.params), list(dispatch.grid)]


def schedule_from_json(
    data: Mapping[str, Any], segments: Sequence[Segment], kernels: Sequence[Kernel], blocks: Sequence[bytes]
) -> tuple[Key, Schedule]:
    key = tuple(tuple(part) if isinstance(part, list) else term_from_json(part["term"]) for part in data["key"])
    left = _dims_from_json(data["left"])
    scalars = {int(v): term_from_json(term) for v, term in data["scalars"].items()}
    calls = tuple(
        LoweredCall(step, tuple(_dispatch(item, kernels, blocks) for item in dispatches))
        for step, dispatches in data["calls"]
    )
    schedule = Schedule(
        segments[data["segment"]],
        calls,
        left,
        left,
        scalars,
        scalars,
        tuple((expression_from_json(term), _number(number)) for term, number in data["decisions"]),
        tuple((int(slot), expression_from_json(term)) for slot, term in data["slots"]),
        tuple(_guard_from_json(guard) for guard in data["guards"]),
    )
    return key, schedule


def block_to_json(block: bytes) -> str:
    return base64.b64encode(block).decode()


def block_from_json(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


def _dispatch(item: Sequence[Any], kernels: Sequence[Kernel], blocks: Sequence[bytes]) -> Dispatch:
    kernel, bindings, block, (x, y, z) = item
    ranges = tuple(Binding(int(tensor), int(offset), int(nbytes)) for tensor, offset, nbytes in bindings)
    if len(ranges) != kernels[kernel].reads + kernels[kernel].writes:
        raise FormatError(f"a dispatch binds {len(ranges)} buffers to {kernels[kernel].label}")
    return Dispatch(kernels[kernel], ranges, blocks[block], (int(x), int(y), int(z)))


def _guard_to_json(guard: Guard) -> dict[str, Any]:
    return {
        "term": term_to_json(guard.term),
        "low": guard.low,
        "high": guard.high,
        "where": guard.where,
        "message": guard.message,
        "further": [term_to_json(term) for term in guard.further],
        "overflow": guard.overflow,
    }


def _guard_from_json(data: Mapping[str, Any]) -> Guard:
    low, high = (None if data[name] is None else _number(data[name]) for name in ("low", "high"))
    further = tuple(term_from_json(term) for term in data["further"])
    where, message, overflow = str(data["where"]), str(data["message"]), bool(data["overflow"])
    return Guard(term_from_json(data["term"]), low, high, where, message, further, overflow)


def _number(data: Any) -> int | float:
    if not isinstance(data, (int, float)):
        raise FormatError(f"{data!r} is not a number")
    return data


def _dims_to_json(dims: Mapping[int, Dims]) -> dict[str, list[int]]:
    return {str(v): list(sizes) for v, sizes in dims.items()}


def _dims_from_json(data: Mapping[str, Any]) -> dict[int, Dims]:
    return {int(v): tuple(map(int, sizes)) for v, sizes in data.items()}
