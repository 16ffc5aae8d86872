"""Buffers that the exporter tore in two.

A buffer that a delegate writes and something outside it reads too is copied: one copy becomes a constant of it,
kept there from call to call, the other stays behind as a constant, with the first value for ever. ExecuTorch itself
computes with that. No name ties the two together, so a constant is taken for the other half if it has the same dims and
holds the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from ..errors import Problem
from .graph import Call, Step
from .names import ATEN, UPDATE
from .remedies import EXIR_OPS
from .values import TensorSpec, Value, ValueList

Content = tuple[str, tuple[int, ...], bytes]


def torn_buffers(values: Sequence[Value], steps: Sequence[Step]) -> list[Problem]:
    """What is wrong with buffers that delegates keep, if others read a copy of them."""
    calls = [step for step in steps if isinstance(step, Call)]
    kept = [c for c in calls if c.name == UPDATE and c.origin.delegate is not None]
    halves = {
        update.outs[0]: spec for update in kept if (spec := _held(values, update.outs[0], mutable=True)) is not None
    }
    if not halves:
        return []
    dims = {spec.dims for spec in halves.values()}
    digests: dict[object, Content] = {}  # by place in the file: one large constant may be named again and again
    readers: dict[Content, list[Call]] = {}
    for reader, spec in _constants(values, calls):
        if spec.dims in dims:
            readers.setdefault(_content(spec, digests), []).append(reader)
    problems = []
    for update in kept:
        if (state := halves.get(update.outs[0])) is None:
            continue
        others = [
            r for r in readers.get(_content(state, digests), ()) if r.origin.instruction != update.origin.instruction
        ]
        if others:
            problems.append(_problem(state, calls, update, others[0]))
    return problems


def _held(values: Sequence[Value], value_id: int, mutable: bool) -> TensorSpec | None:
    """A tensor that the file gives a value to."""
    value = values[value_id]
    if isinstance(value, TensorSpec) and value.constant is not None and value.mutable == mutable:
        return value
    return None


def _constants(values: Sequence[Value], calls: Sequence[Call]) -> Iterator[tuple[Call, TensorSpec]]:
    """Who reads which constant."""
    for call in calls:
        for arg in call.args:
            value = values[arg]
            for value_id in value.ids if isinstance(value, ValueList) else (arg,):
                if (spec := _held(values, value_id, mutable=False)) is not None:
                    yield call, spec


def _content(spec: TensorSpec, known: dict[object, Content]) -> Content:
    """Equal for tensors of the same dims, dtype on the device and numbers."""
    assert spec.constant is not None
    key = (spec.constant.identity, spec.dims, spec.dtype)
    if key not in known:
        numbers = spec.constant.array(spec.dims).astype(spec.dtype.numpy, copy=False)
        known[key] = spec.dtype.short, spec.dims, hashlib.sha256(numbers.tobytes()).digest()
    return known[key]


def _problem(spec: TensorSpec, calls: Sequence[Call], update: Call, reader: Call) -> Problem:
    detail = (
        f"keeps a buffer {spec.dtype.short}{list(spec.dims)} from call to call, and {reader.name} of instruction "
        f"{reader.origin.instruction} reads a constant with what it held at first: the exporter made two of one"
    )
    makers = [c.name for c in calls if update.args[1] in c.outs and c.name.startswith(ATEN)]
    remedy = "Re-export with the op that writes the buffer in VulkanPartitioner's operator_blocklist"
    if makers:
        listed = f"operator_blocklist=[exir_ops.edge.{makers[0]}]"
        remedy = f"Re-export with VulkanPartitioner({listed}), after `{EXIR_OPS}`"
    remedy += ": the buffer then stays outside."
    return Problem("graph", f"delegate {update.origin.delegate}", detail, (str(update.origin),), remedy, "split_buffer")
