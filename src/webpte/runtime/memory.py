"""The device memory of a whole program: its methods share weights, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..device import MEMORY_KINDS, MemoryNeeds, constant_key, memory_needs
from ..plan import Plan
from ..text import lines, sanitize_line, table
from .shown import memory_line


@dataclass(frozen=True, repr=False)
class Memory:
    """Bytes on the device by kind, when every method of a program is loaded. Nothing is taken by asking."""

    name: str  # of the program
    methods: dict[str, MemoryNeeds]  # what each takes alone
    kinds: dict[str, int]  # of all together; weights that several use are there once

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    def __repr__(self) -> str:
        return lines(f"Memory of {sanitize_line(self.name)}", self._rows())

    def _repr_html_(self) -> str:
        return table(f"Memory of {self.name}", self._rows())

    def _rows(self) -> dict[str, str]:
        alone = {sanitize_line(name): memory_line(need) for name, need in self.methods.items()}
        return {**alone, "together": memory_line(MemoryNeeds(self.name, self.kinds, ()))}


def memory_of(name: str, plans: Mapping[str, Plan]) -> Memory:
    """Methods that run nothing on the device take nothing."""
    present: set[object] = set()
    kinds = dict.fromkeys(MEMORY_KINDS, 0)
    for plan in plans.values():
        if not plan.flow.segments:
            continue
        for kind, nbytes in memory_needs(plan, present).kinds.items():
            # Uploads are what the queue holds at a time, whoever uploads.
            kinds[kind] = max(kinds[kind], nbytes) if kind == "uploads" else kinds[kind] + nbytes
        present |= {constant_key(buffer) for buffer in plan.buffers if buffer.kind == "constant"}
    nothing = dict.fromkeys(MEMORY_KINDS, 0)
    alone = {n: memory_needs(plan) if plan.flow.segments else MemoryNeeds(n, nothing, ()) for n, plan in plans.items()}
    return Memory(name, alone, kinds)
