"""What an op says of itself beside its lowering, for passes and whoever else has to know without running it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .dim_rules import Rule
from .formulas import Describe
from .integers import NO_INTEGERS, Integers, elements_of, filled_with
from .work import Flops, Share

NOTHING: Mapping[str, Share] = MappingProxyType({})


@dataclass(frozen=True)
class Facts:
    """Declared where the op is registered. Arguments go by the names that the lowering gives them.

    An op that says nothing is left alone by every pass, except that `mutates` may not be left out.
    """

    mutates: tuple[str, ...] = ()  # written in place; of a list, all members
    view: str | None = None  # the result has the elements of this, in their order and dtype, whatever its shape
    identity: str | None = None  # the result equals this, where it has its shape and dtype; so does any view
    dims: Rule | None = None  # the shapes of the results: see dim_rules.py
    elementwise: Describe | str | None = None  # the formula of an element (formulas.py), or the op that has it
    numbers: tuple[str, ...] = ()  # arguments of the formula where a number will do for a tensor
    fills: str | None = None  # every element of the result equals this number
    work: Flops | None = None  # multiplications and additions: see work.py
    touches: Mapping[str, Share] = field(default_factory=dict)  # arguments of which a call touches but a part
    integers: Integers = NO_INTEGERS  # how large they can get: see integers.py

    @property
    def same(self) -> str | None:
        """What the result equals where shape and dtype are equal."""
        return self.identity or self.view

    @functools.cached_property
    def of_integers(self) -> Integers:
        """What is done to integers, as it is said or follows from other facts."""
        if self.integers is NO_INTEGERS and self.view is not None:
            return elements_of(self.view)
        return filled_with(self.fills) if self.integers is NO_INTEGERS and self.fills is not None else self.integers

    @property
    def replaceable(self) -> bool:
        """Whether a pass may leave a call out or do it elsewhere."""
        return any(fact is not None for fact in (self.view, self.identity, self.elementwise, self.fills))

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """The arguments of the formula, if the op has one of its own."""
        if not callable(self.elementwise):
            return ()
        return tuple(name for name in inspect.signature(self.elementwise).parameters if name != "out")

    @property
    def named(self) -> tuple[str, ...]:
        """Every argument that a fact is about."""
        single = tuple(name for name in (self.view, self.identity, self.fills) if name is not None)
        return (*self.mutates, *self.numbers, *self.operands, *self.touches, *self.integers.named, *single)
