"""Buffers of delegates that change from call to call.

A buffer of the model that only one delegate uses is a constant of that delegate, its first value, and nothing says that
it is not a constant. Three things show that it is written:

- an op writes it in place, as `update_cache` does; that op knows;
- a call's result *is* the constant (`ALIASED`);
- its new value is an output that the program does not take. Which constant it belongs to is then not in the file. It
  has the constant's shape and dtype; where several have them, the load is refused.

`split_buffers` finds buffers that the exporter has split in two. A buffer that a delegate writes and a call outside
reads is copied: one copy becomes a constant of the delegate, which is updated; the other stays a constant with the
initial value, and ExecuTorch computes with it. No name connects the two, so a constant counts as the other copy if it
has the same dims and contents.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..container import VkGraph, VkTensor, VkValueList
from ..errors import Problem
from .graph import Call, Constant, Mutates, Origin, Step, TensorSpec, Value, ValueList, numel
from .names import ATEN, EXIR_OPS, PREPACK, UPDATE

ALIASED = "alias_buffer_mutations"
ALIAS_HINT = f'Re-export with VulkanPartitioner({{"{ALIASED}": True}}), which separates buffers from constants.'
_PIECE_BYTES = 1 << 16  # of a constant that is compared at a time
MAX_CANDIDATE_CONSTANTS = 1000  # constants of one shape that are compared


@dataclass(frozen=True, slots=True)
class MutableBuffer:
    """A mutable buffer: the delegate's ids for it, and its new value after the last call, if any."""

    homes: tuple[int, ...]  # the constant, then its prepacked values
    new: int | None = None


class DelegateConstants:
    """The constants of a delegate, each of which may be a mutable buffer."""

    def __init__(self, vk: VkGraph, calls: Sequence[Call], mutates: Mutates) -> None:
        self._vk = vk
        self._calls = calls
        self.homes: dict[int, list[int]] = {
            vk_id: [vk_id] for vk_id, v in enumerate(vk.values) if isinstance(v, VkTensor) and v.constant_id >= 0
        }
        self._alike: dict[str, list[int]] = {}
        for constant in self.homes:
            self._alike.setdefault(self._like(constant), []).append(constant)
        self._owner = {vk_id: vk_id for vk_id in self.homes}  # of any home
        self._aliased: dict[int, None] = {}  # a set that keeps its order
        self._in_place: set[int] = set()  # results of calls that write an argument
        for call in calls:
            outs = _outs(vk, call)
            if _prepacks(call, outs) and call.args[0] in self.homes and outs[0] not in self._owner:
                self.homes[call.args[0]].append(outs[0])
                self._owner[outs[0]] = call.args[0]
                continue
            self._aliased.update(dict.fromkeys(self._owner[out] for out in outs if out in self._owner))
            if positions := mutates(call):
                self._in_place.update(outs, flat(vk, (call.args[p] for p in positions)))
        self._free = Counter(self._like(constant) for constant in self.homes if constant not in self._aliased)

    def may_become(self, value_id: int) -> bool:
        """Return whether this value may be the new value of a buffer."""
        own = self._owner.get(value_id) not in self._aliased and value_id in self._owner
        return value_id in self._in_place or self._free[self._like(value_id)] > own

    def old_values(self, untaken: Sequence[int]) -> Sequence[int]:
        """Return the buffers whose old value may be returned, if these are new values."""
        return list(dict.fromkeys([*self._aliased, *(c for new in untaken for c in self._candidates(new))]))

    def is_overwritten(self, value_id: int) -> bool:
        """Return whether this value is an old value of a buffer that a call has overwritten already."""
        return value_id in self._aliased and value_id not in self._vk.outputs

    def kept(
        self, untaken: Sequence[int], origin: Origin, load: Callable[[int], Constant]
    ) -> tuple[MutableBuffer, ...] | Problem:
        """Return the buffers that are not written in place, for these new values."""
        groups: dict[str, list[int]] = {}
        for new in untaken:
            if new not in self._in_place:
                groups.setdefault(self._like(new), []).append(new)
        buffers = [MutableBuffer(tuple(self.homes[constant])) for constant in self._aliased]
        for shape, news in groups.items():
            candidates = self._candidates(news[0])
            owner = self._believed(news[0], candidates, load) if len(news) == 1 else None
            if owner is None:
                detail = (
                    f"keeps {len(news)} of its {len(candidates)} constants {shape} from call to call (the new values "
                    f"are outputs that instruction {origin.instruction} does not take): the file does not say which"
                )
                return Problem(
                    "graph", f"delegate {origin.delegate}", detail, (str(origin),), ALIAS_HINT, "ambiguous_buffer"
                )
            buffers.append(MutableBuffer(tuple(self.homes[owner]), news[0]))
        return tuple(buffers)

    def doubt(
        self, taken: Iterable[int], kept: Iterable[MutableBuffer], origin: Origin, load: Callable[[int], Constant]
    ) -> Problem | None:
        """Return a problem if an output may be the new value of a buffer too.

        A module that returns a buffer just as it has written it (`self.n.add_(x)`, `return self.n.clone()`) leaves the
        same bytes as one that returns `self.n + x`. Where the constant is zero, as buffers are at first and what is
        computed with is not, it is taken for a buffer, which would be forgotten.
        """
        sure = {buffer.homes[0] for buffer in kept}
        sure |= {owner for home, owner in self._owner.items() if home in self._in_place}
        uniform = _Uniform(load)
        for output in taken:
            constants = [c for c in self._candidates(output) if c not in sure and output not in self.homes[c]][
                :MAX_CANDIDATE_CONSTANTS
            ]
            constants = [c for c in constants if uniform.number(c) == 0]
            if constants and self._sources(constants).get(output, 0):
                detail = (
                    f"returns {self._like(output)}, computed from a constant of that shape which is zero: "
                    "a buffer that is to be kept would leave the same file"
                )
                return Problem(
                    "graph", f"delegate {origin.delegate}", detail, (str(origin),), ALIAS_HINT, "uncertain_buffer"
                )
        return None

    def _candidates(self, value_id: int) -> list[int]:
        return [c for c in self._alike.get(self._like(value_id), ()) if c not in self._aliased]

    def _like(self, value_id: int) -> str:
        value = self._vk.values[value_id]
        return f"{value.dtype.short}{list(value.dims)}" if isinstance(value, VkTensor) else ""

    def _believed(self, new: int, candidates: Sequence[int], load: Callable[[int], Constant]) -> int | None:
        """Return the constant that becomes this value; None if that is ambiguous.

        With several of one shape it is: new values come in the order in which the module wrote them, constants in that
        in which they are used, and what is computed from a buffer may be for another. But single numbers of the module
        (`self.n += 1`) are constants too, and adding the one that is zero would have no effect.
        """
        if len(candidates) == 1:
            return candidates[0]
        value = self._vk.values[new]
        if not isinstance(value, VkTensor) or numel(value.dims) != 1 or len(candidates) > MAX_CANDIDATE_CONSTANTS:
            return None
        uniform = _Uniform(load)
        zeros = [c for c in candidates if uniform.number(c) == 0]
        return zeros[0] if len(zeros) == 1 and self._sources(zeros).get(new, 0) else None

    def _sources(self, candidates: Sequence[int]) -> dict[int, int]:
        """Return for every value the candidates that it is computed from, as a bit set."""
        bits = {home: 1 << number for number, c in enumerate(candidates) for home in self.homes[c]}
        for call in self._calls:
            read = 0
            for arg in flat(self._vk, call.args):
                read |= bits.get(arg, 0)
            if read:
                for out in _outs(self._vk, call):
                    bits[out] = bits.get(out, 0) | read
        return bits


class _Uniform:
    """Finds constants with equal elements. Data is read once: a hostile file may refer to it many times."""

    def __init__(self, load: Callable[[int], Constant]) -> None:
        self._load = load
        self._known: dict[object, float | None] = {}

    def number(self, constant: int) -> float | None:
        """Return the number that all elements are equal to, or None."""
        data = self._load(constant)
        if data.identity not in self._known:
            self._known[data.identity] = _uniform_number(data)
        return self._known[data.identity]


def _uniform_number(data: Constant) -> float | None:
    """Return the number that all elements are equal to, or None. Weights differ in the first piece: no more is read."""
    number: float | None = None
    for piece in data.pieces(_PIECE_BYTES):
        array = data.dtype.from_bytes(bytearray(piece))
        number = float(array[0]) if number is None else number
        if not (array == number).all():
            return None
    return number


def flat(vk: VkGraph, ids: Iterable[int]) -> list[int]:
    """Return the ids with every list replaced by its members."""
    flat: list[int] = []
    for vk_id in ids:
        value = vk.values[vk_id]
        flat += value.ids if isinstance(value, VkValueList) else [vk_id]
    return flat


def _prepacks(call: Call, outs: Sequence[int]) -> bool:
    """Return whether a call makes a tensor of a constant. Calls of another arity are refused with the whole graph."""
    return call.name == PREPACK and len(call.args) == len(outs) == 1


def _outs(vk: VkGraph, call: Call) -> list[int]:
    return flat(vk, call.outs)


Content = tuple[str, tuple[int, ...], bytes]


def split_buffers(values: Sequence[Value], steps: Sequence[Step]) -> list[Problem]:
    """Return a problem for every mutable buffer of a delegate of which another call reads a stale copy."""
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
    """Return a tensor with a constant in the file, or None."""
    value = values[value_id]
    if isinstance(value, TensorSpec) and value.constant is not None and value.mutable == mutable:
        return value
    return None


def _constants(values: Sequence[Value], calls: Sequence[Call]) -> Iterator[tuple[Call, TensorSpec]]:
    """Yield each call with each constant that it reads."""
    for call in calls:
        for arg in call.args:
            value = values[arg]
            for value_id in value.ids if isinstance(value, ValueList) else (arg,):
                if (spec := _held(values, value_id, mutable=False)) is not None:
                    yield call, spec


def _content(spec: TensorSpec, contents: dict[object, Content]) -> Content:
    """Return a key that is equal for tensors of the same dims, device dtype and contents."""
    assert spec.constant is not None
    key = (spec.constant.identity, spec.dims, spec.dtype)
    if key not in contents:
        numbers = spec.constant.array(spec.dims).astype(spec.dtype.numpy, copy=False)
        contents[key] = spec.dtype.short, spec.dims, hashlib.sha256(numbers.tobytes()).digest()
    return contents[key]


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
