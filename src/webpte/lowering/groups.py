"""Arguments that many schemas share, in the same order, taken by a lowering as one value.

    @dataclass(frozen=True)
    class Coding:
        scale: float
        zero_point: int

    @op("toy.rescale.default")
    def rescale(cx: Context, x: Tensor, given: Annotated[Coding, "input_"], *, out: Tensor) -> None: ...

A parameter whose annotation is a dataclass stands for as many arguments as the class has fields: here the schema has
`x`, `input_scale` and `input_zero_point`. Whoever asks an op for its parameters sees these flat names; the lowering
and the reference read `given.scale`.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

Parameters = tuple[tuple[str, Any], ...]


class ArgumentGroup(NamedTuple):
    """A parameter of a lowering: arguments `first` to `last` of the schema, and what makes one value of them."""

    first: int
    last: int
    make: Callable[..., Any] | None


def flatten(hints: Mapping[str, Any]) -> tuple[Parameters, tuple[ArgumentGroup, ...]]:
    """The schema's arguments by name and annotation, and which of them make each parameter, given the parameters'."""
    parameters: list[tuple[str, Any]] = []
    slots = []
    for name, hint in hints.items():
        made, members = _members(name, hint)
        slots.append(ArgumentGroup(len(parameters), len(parameters) + len(members), made))
        parameters += members
    return tuple(parameters), tuple(slots)


def _members(name: str, annotation: Any) -> tuple[type | None, list[tuple[str, Any]]]:
    prefix = ""
    if typing.get_origin(annotation) is Annotated:
        annotation, prefix = typing.get_args(annotation)
    if not dataclasses.is_dataclass(annotation):
        return None, [(name, annotation)]
    assert isinstance(annotation, type)
    hints = _fields(annotation)
    return annotation, [(prefix + field.name, hints[field.name]) for field in dataclasses.fields(annotation)]


@functools.cache
def _fields(group: type) -> dict[str, Any]:
    return typing.get_type_hints(group)


def gather(slots: tuple[ArgumentGroup, ...], arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a schema as a lowering's parameters."""
    if all(slot.make is None for slot in slots):
        return arguments
    return [
        arguments[slot.first] if slot.make is None else slot.make(*arguments[slot.first : slot.last]) for slot in slots
    ]
