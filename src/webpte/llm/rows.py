"""What a pass over the weights is given: rows of (token, slot, position), and whose next token is chosen how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from .choice import Choice, Chosen
from .reach import Reach

if TYPE_CHECKING:
    from ..runtime import Method


class Row(NamedTuple):
    """A token at a position of a slot's cache."""

    token: int
    slot: int
    position: int


class Pick(NamedTuple):
    """A row, by its index in the pass, whose next token is chosen, and how."""

    row: int
    choice: Choice


class Runner(Protocol):
    """A language model's caches as slots, and passes over them.

    A pass writes what it computes behind the rows it was given: nothing of a slot before the first of its rows changes.
    """

    @property
    def method(self) -> Method:
        """What runs, for those who count what it does."""

    @property
    def slots(self) -> int:
        """How many there are now."""

    @property
    def most_slots(self) -> int:
        """How many there may be: 1 where the program cannot be batched."""

    @property
    def refusal(self) -> str | None:
        """Why it cannot be batched."""

    @property
    def capacity(self) -> int:
        """Tokens that a slot holds."""

    @property
    def reach(self) -> Reach | None:
        """How far back a slot can go on from; None: to any position."""

    @property
    def most_rows(self) -> int:
        """In one pass."""

    @property
    def most_picks(self) -> int:
        """In one pass, too."""

    @property
    def most_drafts(self) -> int:
        """Rows of a slot behind its first, of those that are picked; 0 where they would cost passes of their own."""

    @property
    def most_edits(self) -> int:
        """Tokens of a row whose logits may be changed before the choice."""

    @property
    def recoveries(self) -> int:
        """How often the caches were lost with a device. A change means that every slot is empty."""

    def run(self, rows: Sequence[Row], picks: Sequence[Pick]) -> list[Chosen]:
        """One submit. Rows of a slot stand together, with ascending positions; picks may be none."""

    def run_steps(self, rows: Sequence[Row], picks: Sequence[Pick], count: int) -> list[list[Chosen]]:
        """`count` tokens for each of several slots in one submit, by step and row: one row a slot, all picked in order.

        What is chosen is fed to the next step on the device; positions and the choices' steps advance by one. Choices
        have neither masks nor edits.
        """

    def logits(self, rows: Sequence[Row], count: int = 1) -> np.ndarray[Any, Any]:
        """Run rows of one slot; the logits behind the last `count` of them, (count, V)."""

    def copy(self, source: int, target: int, count: int) -> None:
        """The first `count` tokens of a slot, into another."""

    def grow(self, slots: int) -> None:
        """Make more slots. What is in the others stays."""

    def sizes(self, count: int) -> list[int]:
        """Bytes of each piece that `read` gives."""

    def read(self, slot: int, count: int) -> list[memoryview]:
        """What is cached of the first `count` tokens."""

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        """Take over what `read` gave."""
