"""A method as one graph: values, and the steps that read and write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import GraphError
from .values import SymInt, TensorSpec, Value, ValueList, flattened

MOST_NAME = 255  # characters of an input's name


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a step stands in the file."""

    instruction: int
    delegate: int | None = None
    node: int | None = None

    def __str__(self) -> str:
        if self.delegate is None:
            return f"instruction {self.instruction}"
        return f"delegate {self.delegate}, node {self.node}"


OVERFLOW_FLAGS = 1024  # results of names.OVERFLOW, one for each invocation: no two write the same word


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call. `args` excludes the outputs; `kernel` tells an out-variant from a delegate's call."""

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
    """What a person wants to know of one delegate."""

    number: int  # in the file
    backend: str
    calls: int
    values: int
    constants: int
    nbytes: int
    options: tuple[tuple[str, str], ...]
    known: bool = True  # False for another backend's: what is in it cannot be told


@dataclass(frozen=True)
class Graph:
    """The whole method, delegates inlined. Ids index `values`."""

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
        """The call at a place among the steps, which must not be a jump."""
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
        """The ids with every ValueList replaced by its members."""
        return tuple(flattened(ids, self.values))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))
