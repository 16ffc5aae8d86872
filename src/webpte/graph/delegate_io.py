"""Matching the values that an instruction passes to a delegate with the delegate's inputs and outputs.

The file has two lists, and the exporter does not always write the same values. An input that the delegate does not use
is passed and not listed. An output is listed once, however often it is passed. The new value of a buffer that the
delegate keeps is listed, before all others, and not passed; its old value, if it is returned, is passed and not listed.
So the counts may differ, or agree by accident. If the values without state fit one by one, that matching is used. Any
other matching is used only if it is the only possible one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from ..container import DType, EValue, IntValue, TensorValue, VkGraph, VkSymInt, VkTensor
from ..errors import GraphError, Problem
from .graph import Origin, device_dtype, numel
from .mutable_buffers import DelegateConstants
from .names import COPIES, keep_out

KEEP_COPIES = (
    f"Inside delegates ExecuTorch drops copies, and with them the difference between values. {keep_out(COPIES)}"
)
SEARCH_LIMIT = 1 << 22  # steps of a search: a hostile file may list any number of values

Pairs = tuple[tuple[int, int], ...]  # (delegate's value, program's value)
Choices = Callable[[int, int], list[tuple[int, int]]]  # (position, listed so far) -> (delegate's value, listed then)
FLOATS = (DType.FLOAT16, DType.FLOAT32)
SKIPPED = -1  # in place of a delegate's value: the delegate does not list what is passed


@dataclass(frozen=True, slots=True)
class DelegateIO:
    """The pairs of inputs and outputs. `untaken` are outputs that are not passed: new values of state."""

    inputs: Pairs
    outputs: Pairs
    untaken: tuple[int, ...] = ()


def match_delegate_io(
    values: Sequence[EValue],
    written: Container[int],
    vk: VkGraph,
    args: tuple[int, ...],
    origin: Origin,
    buffers: DelegateConstants,
) -> DelegateIO | Problem:
    """Match the values of one call. Values in `written` are written elsewhere, so they are not outputs of this call."""
    listed = f"takes {len(vk.inputs)} inputs and {len(vk.outputs)} outputs"
    counts = f"{listed}; instruction {origin.instruction} passes {len(args)} values"
    split = max([len(vk.inputs), *(position + 1 for position, arg in enumerate(args) if arg in written)])
    if split > len(args) or len(set(args[split:])) != len(args) - split:
        raise GraphError(f"delegate {origin.delegate} {counts}", code="wrong_arity")
    fits = _Fits(vk, values)
    inputs = _inputs(vk, args[:split], fits)
    outputs = _outputs(vk, args[split:], fits, buffers)
    if not inputs or not outputs:
        raise GraphError(
            f"delegate {origin.delegate} {counts}, {split} of them inputs; their shapes and dtypes do not match",
            code="wrong_arity",
        )
    if len(inputs) > 1 or len(outputs) > 1 or any(buffers.is_overwritten(vk_id) for vk_id, _ in outputs[0][1]):
        detail = f"{counts}, {split} of them inputs, and the file does not say which is which"
        return Problem("graph", f"delegate {origin.delegate}", detail, (str(origin),), KEEP_COPIES, "ambiguous_values")
    untaken, taken = outputs[0]
    for vk_id, program_id in (*inputs[0], *taken):
        if not fits(vk_id, program_id):
            raise GraphError(f"delegate {origin.delegate}: {fits.difference(vk_id, program_id)}", code="value_mismatch")
    return DelegateIO(inputs[0], taken, untaken)


@dataclass(frozen=True, slots=True)
class _Fits:
    """Tests whether a value of the delegate can be a value of the program."""

    vk: VkGraph
    values: Sequence[EValue]

    def __call__(self, vk_id: int, program_id: int) -> bool:
        inner, outer = self.vk.values[vk_id], self.values[program_id]
        if isinstance(inner, VkSymInt):
            return isinstance(outer, IntValue) or (isinstance(outer, TensorValue) and numel(outer.sizes) == 1)
        if not isinstance(inner, VkTensor) or not isinstance(outer, TensorValue):
            return False
        same = inner.dims == outer.sizes or (outer.dynamic and len(inner.dims) == len(outer.sizes))
        return same and _crosses(inner, device_dtype(outer.dtype))

    def all(self, pairs: Pairs) -> bool:
        return all(self(vk_id, program_id) for vk_id, program_id in pairs)

    def difference(self, vk_id: int, program_id: int) -> str:
        inner, outer = self.vk.values[vk_id], self.values[program_id]
        if not isinstance(inner, VkTensor) or not isinstance(outer, TensorValue):
            kind = type(outer).__name__.removesuffix("Value")
            return f"value {vk_id} is a {type(inner).__name__}, the program's value {program_id} a {kind}"
        if len(inner.dims) != len(outer.sizes):
            ours = f"has {len(inner.dims)} dims {list(inner.dims)}"
            return f"value {vk_id} {ours}, the program's value {program_id} has {len(outer.sizes)}: {list(outer.sizes)}"
        ours, theirs = (f"{t.dtype.short}{list(dims)}" for t, dims in ((inner, inner.dims), (outer, outer.sizes)))
        return f"value {vk_id} is {ours}, the program's value {program_id} {theirs}"


def _crosses(inner: VkTensor, outer: DType) -> bool:
    if inner.staging_dtype is None and outer in FLOATS:  # older exporters left out how halves cross
        return inner.dtype in FLOATS
    return outer in (device_dtype(inner.dtype), device_dtype(inner.staging_dtype or inner.dtype))


def _inputs(vk: VkGraph, passed: tuple[int, ...], fits: _Fits) -> list[Pairs]:
    """Return the possible matchings of the inputs; at most two, because more than one is ambiguous."""
    if len(passed) == len(vk.inputs):
        return [tuple(zip(vk.inputs, passed, strict=True))]
    if len(passed) * len(vk.inputs) > SEARCH_LIMIT:
        return [(), ()]

    def choices(position: int, count: int) -> list[tuple[int, int]]:
        used = count < len(vk.inputs) and fits(vk.inputs[count], passed[position])
        return [(SKIPPED, count), *([(vk.inputs[count], count + 1)] if used else [])]

    return [
        tuple((vk_id, program_id) for vk_id, program_id in zip(reading, passed, strict=True) if vk_id != SKIPPED)
        for reading in _readings(len(passed), len(vk.inputs), choices)
    ]


def _outputs(
    vk: VkGraph, targets: tuple[int, ...], fits: _Fits, buffers: DelegateConstants
) -> list[tuple[tuple[int, ...], Pairs]]:
    """Return at most two possible matchings of the outputs: those that are not passed, and the pairs of the others."""
    surplus = max(len(vk.outputs) - len(targets), 0)
    one_by_one: Pairs = tuple(zip(vk.outputs[surplus:], targets, strict=False))
    kept = _leading(vk.outputs, buffers)
    even = len(one_by_one) == len(targets)
    if even and surplus <= kept and fits.all(one_by_one):
        return [(vk.outputs[:surplus], one_by_one)]
    steps = len(targets) * (len(vk.outputs) + 1) * (len(vk.outputs) + len(buffers.homes)) * (kept + 1)
    if steps > SEARCH_LIMIT:
        return [((), ())] * 2
    matches = []
    for count in range(surplus, kept + 1):
        untaken = vk.outputs[:count]
        choices = _output_choices(vk.outputs, count, targets, fits, buffers.old_values(untaken))
        readings = _readings(len(targets), len(vk.outputs) - count, choices)
        matches += [(untaken, tuple(zip(reading, targets, strict=True))) for reading in readings]
    # Nothing fits: one by one, so that the error names the two values that do not.
    return matches or ([((), one_by_one)] if even and not surplus else [])


def _leading(outputs: Sequence[int], buffers: DelegateConstants) -> int:
    """Return how many of the first outputs may be new values of state."""
    return next((i for i, vk_id in enumerate(outputs) if not buffers.may_become(vk_id)), len(outputs))


def _output_choices(
    outputs: Sequence[int], untaken: int, targets: Sequence[int], fits: _Fits, old: Sequence[int]
) -> Choices:
    def choices(position: int, count: int) -> list[tuple[int, int]]:
        taken = untaken + count
        again = [(vk_id, count) for vk_id in (*outputs[:taken], *old) if fits(vk_id, targets[position])]
        first = taken < len(outputs) and fits(outputs[taken], targets[position])
        return [*again, *([(outputs[taken], count + 1)] if first else [])]

    return choices


def _readings(positions: int, listed: int, choices: Choices) -> list[list[int]]:
    """Return the assignments of a value to each position that use all listed values in order; at most two."""
    ways = [[0] * (listed + 1) for _ in range(positions)] + [[0] * listed + [1]]
    for position in reversed(range(positions)):
        for count in range(listed + 1):
            total = sum(ways[position + 1][after] for _, after in choices(position, count))
            ways[position][count] = min(total, 2)
    if ways[0][0] != 1:
        return [[SKIPPED] * positions] * ways[0][0]
    reading, count = [], 0
    for position in range(positions):
        vk_id, count = next(c for c in choices(position, count) if ways[position + 1][c[1]])
        reading.append(vk_id)
    return [reading]
