"""The traits of an op: properties that graph passes, the planner and profiles need without running its lowering."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

from .dim_rules import Rule
from .formulas import Describe
from .integers import NO_INTEGERS, Integers, elements_of, filled_with
from .work import Flops, Share


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
    work: Flops | None = None  # multiplications and additions: see work.py
    memory_traffic: Mapping[str, Share] = field(default_factory=dict)  # arguments that a call reads or writes in part
    integers: Integers = NO_INTEGERS  # the range of integer results: see integers.py

    @property
    def same(self) -> str | None:
        """Return the argument that the result equals if shape and dtype are equal."""
        return self.identity or self.view

    @functools.cached_property
    def of_integers(self) -> Integers:
        """Return the rule for integers, as declared or as implied by `view` or `fills`."""
        if self.integers is NO_INTEGERS and self.view is not None:
            return elements_of(self.view)
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
        return (*self.mutates, *self.numbers, *self.operands, *self.memory_traffic, *self.integers.named, *single)
