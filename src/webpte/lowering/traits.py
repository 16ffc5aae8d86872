"""The traits of an op: properties that graph passes, the planner and profiles need without running its lowering."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..graph import numel
from .dim_rules import Rule
from .formulas import Describe
from .integers import NO_INTEGERS, Integers, all_of, filled_with

Dims = tuple[int, ...]


class CallSizes(Protocol):
    """The sizes and numbers of a call, by the names of its op's arguments."""

    @property
    def out(self) -> Dims:
        """Return the dims of the first output."""

    def dims(self, argument: str) -> Dims:
        """Return the dims of a tensor."""

    def each(self, argument: str) -> list[Dims]:
        """Return the dims of every tensor of a list."""

    def number(self, argument: str) -> Any:
        """Return a number."""

    def numbers(self, argument: str) -> list[int]:
        """Return the numbers of a list."""


Flops = Callable[[CallSizes], int]  # multiplications and additions
# The share of a tensor with these dims that a call accesses; the last argument is whether the call writes it.
Share = Callable[[CallSizes, Dims, bool], float]


@dataclass(frozen=True, kw_only=True)
class Indexing:
    """An argument whose integers are positions along a dim of a tensor.

    `index` is a tensor, or a list with a tensor, or none, for each dim of `tensor`, which then needs no `dim`. `dim` is
    a number, or the argument that has it.
    """

    index: str
    tensor: str
    dim: int | str = 0
    from_end: bool = False  # positions below 0 count from the end, as they do in PyTorch's op


@dataclass(frozen=True, kw_only=True)
class OpTraits:
    """Declared where the op is registered. Arguments are named as in the lowering's signature.

    Passes leave an op without traits as it is. An op that writes in place must declare `mutates`.
    """

    mutates: tuple[str, ...] = ()  # arguments written in place; if one is a list, all its members
    view: str | None = None  # the result has the elements of this argument, in their order and dtype, in any shape
    identity: str | None = None  # the result equals this argument if shape and dtype are equal; implied by `view`
    dims: Rule | None = None  # the shapes of the results: see dim_rules.py
    elementwise: Describe | str | None = None  # the formula of one element (formulas.py), or the op that has it
    numbers: tuple[str, ...] = ()  # arguments of the formula that accept a number in place of a tensor
    fills: str | None = None  # every element of the result equals this number
    work: Flops | None = None  # multiplications and additions: see `sums_over`
    memory_traffic: Mapping[str, Share] = field(default_factory=dict)  # arguments that a call reads or writes in part
    integers: Integers = NO_INTEGERS  # the range of integer results: see integers.py
    indexing: Indexing | None = None  # positions that must be inside a tensor: see plan/indices.py
    own_negatives: str | None = None  # below 0, this argument's integers are not positions for other ops that read it
    sequences: bool = False  # its rows are tokens, whose bits may not depend on the rows beside them

    @property
    def same(self) -> str | None:
        """Return the argument that the result equals if shape and dtype are equal."""
        return self.identity or self.view

    @functools.cached_property
    def of_integers(self) -> Integers:
        """Return the rule for integers, as declared or as implied by `view` or `fills`."""
        if self.integers is NO_INTEGERS and self.view is not None:
            return all_of(self.view)
        return filled_with(self.fills) if self.integers is NO_INTEGERS and self.fills is not None else self.integers

    @property
    def replaceable(self) -> bool:
        """Return whether a pass may remove a call or compute its result in another kernel."""
        return any(trait is not None for trait in (self.view, self.identity, self.elementwise, self.fills))

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """Return the arguments of the formula if the op has one of its own."""
        if not callable(self.elementwise):
            return ()
        return tuple(name for name in inspect.signature(self.elementwise).parameters if name != "out")

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Return every argument that a trait names."""
        single = tuple(name for name in (self.view, self.identity, self.fills) if name is not None)
        names = (*self.mutates, *self.numbers, *self.operands, *self.memory_traffic, *self.integers.named, *single)
        return (*names, *self._indexing_names)

    @property
    def _indexing_names(self) -> tuple[str, ...]:
        own = () if self.own_negatives is None else (self.own_negatives,)
        if (indexing := self.indexing) is None:
            return own
        dim = (indexing.dim,) if isinstance(indexing.dim, str) else ()
        return (indexing.index, indexing.tensor, *dim, *own)


# -- rules for the work of a call --------------------------------------------------------------------------------------
# Arithmetic counts the multiplications and additions of products, which a device's peak is compared with. A tensor that
# `memory_traffic` does not name counts in full.


def sums_over(rows: str) -> Flops:
    """Return the rule for a product of matrices: an output element is a sum over the last dim of `rows`."""
    return lambda sizes: 2 * numel(sizes.out) * sizes.dims(rows)[-1]


def rows_of(*tables: str) -> dict[str, Share]:
    """Return the rules for tables of which every output row reads one row."""

    def share(sizes: CallSizes, dims: Dims, written: bool) -> float:
        return numel(sizes.out[:-1]) / max(1, dims[0]) if len(dims) > 1 else 1.0

    return dict.fromkeys(tables, share)


def part_taken(sizes: CallSizes, dims: Dims, written: bool) -> float:
    """Return the share of a tensor that the output is a part of."""
    return numel(sizes.out) / max(1, numel(dims))


def filled(tokens: str, start: str) -> Share:
    """Return the rule for a cache (B, C, H, D) with `start` filled positions, which tokens (B, S, H, D) follow."""

    def share(sizes: CallSizes, dims: Dims, written: bool) -> float:
        num_new = sizes.dims(tokens)[1]
        return (num_new if written else sizes.number(start) + num_new) / max(1, dims[1])

    return share
