"""A method as one graph: values, and the steps that read and write them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..container import DType, Span
from ..errors import GraphError


def numel(dims: tuple[int, ...]) -> int:
    """Return the number of elements of a shape; 1 for a scalar."""
    return math.prod(dims)


def normalize_dim(dim: int, rank: int) -> int:
    """Return a dim index in [0, rank). Negative ones count from the end; a scalar has the dim 0."""
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise GraphError(f"dim {dim} is outside a tensor of rank {rank}")
    return dim % limit


# WebGPU has no 64-bit arithmetic: the exporter narrows inside delegates, the border does it for callers.
_NARROW = {DType.INT64: DType.INT32, DType.FLOAT64: DType.FLOAT32}


def device_dtype(dtype: DType) -> DType:
    """Return the dtype on the device of a tensor that callers see as `dtype`."""
    return _NARROW.get(dtype, dtype)


@dataclass(frozen=True, slots=True)
class Constant:
    """The row-major data of a constant in a mapped file: one span, or several that a pass has joined."""

    span: Span
    dtype: DType  # as stored; may be wider than the tensor's dtype on the device
    name: str  # key or position, for messages
    rest: tuple[Span, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        return (self.span, *self.rest)

    @property
    def nbytes(self) -> int:
        return sum(span.size for span in self.spans)

    @property
    def identity(self) -> tuple[object, ...]:
        """Return a key that is equal for constants with the same bytes: content-addressed data shares one span."""
        return (self.dtype, *((id(span.file), span.offset, span.size) for span in self.spans))

    def pieces(self, limit: int) -> Iterator[memoryview | bytes]:
        """Yield the data in pieces of `limit` bytes; only the last may be shorter. Small spans are joined."""
        held: list[memoryview] = []
        size = 0
        for span in self.spans:
            start = 0
            while start < span.size:
                taken = min(limit - size, span.size - start)
                held.append(span.sub(start, taken).view())
                start, size = start + taken, size + taken
                if size == limit:
                    yield held[0] if len(held) == 1 else b"".join(held)
                    held, size = [], 0
        if held:
            yield held[0] if len(held) == 1 else b"".join(held)

    def array(self, dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return a copy of the data for the host."""
        data = b"".join(span.view() for span in self.spans)
        return self.dtype.from_bytes(bytearray(data)).reshape(dims)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor at its bound: live dims never exceed `dims`, the rank never changes."""

    dtype: DType
    dims: tuple[int, ...]
    host_dtype: DType
    dynamic: bool = False  # the caller may pass smaller dims
    constant: Constant | None = None
    mutable: bool = False  # a program-level buffer that outlives a call; zero at first where it has no constant
    shared: tuple[int, int] | None = None  # where the exporter planned a buffer that the program's methods share

    @property
    def stored(self) -> bool:
        """Return whether the value exists before the method runs: a constant or a buffer."""
        return self.constant is not None or self.mutable

    def __str__(self) -> str:
        return f"{self.dtype.short}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class SymInt:
    """An integer that may change from call to call."""


@dataclass(frozen=True, slots=True)
class SymFloat:
    """A float that may change from call to call; host only."""


@dataclass(frozen=True, slots=True)
class SymBool:
    """A boolean that may change from call to call; host only."""


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Double:
    value: float


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool


@dataclass(frozen=True, slots=True)
class String:
    value: str


@dataclass(frozen=True, slots=True)
class Null:
    pass


@dataclass(frozen=True, slots=True)
class IntList:
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubleList:
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoolList:
    values: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ValueList:
    """Ids of other values: an argument list, a size mixing Int and SymInt, or the outputs of one call."""

    ids: tuple[int, ...]


Value = (
    TensorSpec
    | SymInt
    | SymFloat
    | SymBool
    | Int
    | Double
    | Bool
    | String
    | Null
    | IntList
    | DoubleList
    | BoolList
    | ValueList
)
LIVE_SCALARS = (SymInt, SymFloat, SymBool)


def flattened(ids: Iterable[int], values: Sequence[Value]) -> list[int]:
    """Return the ids with every list replaced by its members."""
    flat: list[int] = []
    for value_id in ids:
        value = values[value_id]
        flat.extend(value.ids if isinstance(value, ValueList) else (value_id,))
    return flat


MAX_NAME_CHARS = 255  # characters of an input's name


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of a step in the file."""

    instruction: int
    delegate: int | None = None
    node: int | None = None

    def __str__(self) -> str:
        if self.delegate is None:
            return f"instruction {self.instruction}"
        return f"delegate {self.delegate}, node {self.node}"


CHECK_FLAGS = 1024  # results of the ops of names.CHECKS, one for each invocation: no two write the same word


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call. `args` excludes the outputs; `kernel` is true for an out-variant outside delegates."""

    name: str
    args: tuple[int, ...]
    outs: tuple[int, ...]
    origin: Origin
    kernel: bool = False
    on_host: bool = False  # a kernel call that the CPU runs even where the device could: it may need 64 bits


@dataclass(frozen=True, slots=True)
class Jump:
    """Go to step `target` if the condition is false."""

    condition: int
    target: int
    origin: Origin


Step = Call | Jump
Mutates = Callable[[Call], tuple[int, ...]]  # positions of the arguments that a call writes in place


@dataclass(frozen=True, slots=True)
class DelegateInfo:
    """A summary of one delegate."""

    number: int  # in the file
    backend: str
    calls: int
    values: int
    constants: int
    nbytes: int
    options: tuple[tuple[str, str], ...]
    known: bool = True  # False for another backend, whose contents cannot be read


@dataclass(frozen=True)
class Graph:
    """A whole method with delegates inlined. Ids index `values`."""

    name: str
    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    delegates: tuple[DelegateInfo, ...] = ()
    names: dict[int, str] = field(default_factory=dict, hash=False)  # of inputs and outputs, where the file has them

    def _kind(self, value_id: int) -> str:
        if not 0 <= value_id < len(self.values):
            raise GraphError(
                f"value {value_id} does not exist; {self.name} has {len(self.values)} values", code="unknown_value"
            )
        return type(self.values[value_id]).__name__

    def tensor(self, value_id: int) -> TensorSpec:
        kind = self._kind(value_id)
        value = self.values[value_id]
        if not isinstance(value, TensorSpec):
            raise GraphError(f"value {value_id} is a {kind}, not a Tensor", code="wrong_kind")
        return value

    def call(self, step: int) -> Call:
        """Return the call at an index among the steps, which must not be a jump."""
        call = self.steps[step]
        assert isinstance(call, Call)
        return call

    def symint(self, value_id: int) -> SymInt:
        kind = self._kind(value_id)
        value = self.values[value_id]
        if not isinstance(value, SymInt):
            raise GraphError(f"value {value_id} is a {kind}, not a SymInt", code="wrong_kind")
        return value

    def value_list(self, value_id: int) -> tuple[int, ...]:
        kind = self._kind(value_id)
        value = self.values[value_id]
        if not isinstance(value, ValueList):
            raise GraphError(f"value {value_id} is a {kind}, not a ValueList", code="wrong_kind")
        return value.ids

    def flatten(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return the ids with every ValueList replaced by its members."""
        return tuple(flattened(ids, self.values))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))


PLAIN = "bhmk,bhkn->bhmn"  # the default layout of the operands of MATMUL: see ops/matmul/matmul.py


class ProgramLine(NamedTuple):
    """One line of an elementwise program."""

    dtype: str
    name: str
    args: tuple[str, ...]


def format_program(steps: Sequence[ProgramLine], outputs: Sequence[str]) -> str:
    return "\n".join([*(" ".join((s.dtype, s.name, *s.args)) for s in steps), " ".join(("=", *outputs))])


@functools.lru_cache(maxsize=1024)
def parse_program(text: str) -> tuple[tuple[ProgramLine, ...], tuple[str, ...]]:
    """Return the steps and outputs of an elementwise program."""
    *lines, last = text.split("\n")
    steps = [line.split(" ") for line in lines]
    if not steps or any(len(step) < 2 for step in steps) or not last.startswith("= "):
        raise GraphError(f"{text!r} is not an elementwise program", code="elementwise_program")
    return tuple(ProgramLine(dtype, name, tuple(args)) for dtype, name, *args in steps), tuple(last.split(" ")[1:])
