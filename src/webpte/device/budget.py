"""The memory a method needs, summed before any of it is taken."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from ..errors import OutOfMemory
from ..plan import REMEDIES, Buffer, Plan, buffer_name, padded
from ..text import lines, sanitize_line, size, table
from .ledger import held
from .machine_memory import Offer
from .parameters import parameter_bytes
from .weights import CHUNK, constant_key

SMALLEST_STAGING = 256  # room for the tokens of several steps
LARGEST = 3  # buffers named in an error
MEMORY_KINDS = {  # and what people call them
    "constant": "weights",
    "state": "state",
    "activation": "activations",
    "readback": "readback",
    "parameters": "parameters",
    "uploads": "uploads",
}


@dataclass(frozen=True, repr=False)
class Needs:
    """Bytes on the device by kind. Uploads are what the queue holds at most; all others are buffers."""

    name: str
    kinds: dict[str, int]
    largest: tuple[tuple[str, int], ...]  # buffers

    @property
    def buffers(self) -> int:
        return self.total - self.kinds["uploads"]

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    def __repr__(self) -> str:
        return lines(f"Needs of {sanitize_line(self.name)}", self.rows())

    def _repr_html_(self) -> str:
        return table(f"Needs of {self.name}", self.rows())

    def rows(self) -> dict[str, str]:
        """Kinds that take something, as people call them, and the sum."""
        kinds = {MEMORY_KINDS[kind]: size(nbytes) for kind, nbytes in self.kinds.items() if nbytes}
        return {**kinds, "all": size(self.total)}


def needs(plan: Plan, present: Container[object] = ()) -> Needs:
    """What a method will take beside constants that are present already."""
    taken = [b for b in plan.buffers if b.kind != "constant" or constant_key(b) not in present]
    kinds = {kind: sum(b.nbytes for b in taken if b.kind == kind) for kind in ("constant", "state", "activation")}
    filled = sum(b.nbytes for b in taken if b.fill is not None)
    inputs = [sum(padded(plan.stored_bytes(v)) for v in values) for values in plan.uploads.values()]
    kinds["readback"] = staging_bytes(plan)
    kinds["parameters"] = parameter_bytes(plan.parameter_blocks)
    kinds["uploads"] = max(min(filled, CHUNK), *inputs, 0)
    return Needs(plan.graph.name, kinds, _largest(plan, taken))


def needs_of_state(plan: Plan, filled: bool) -> Needs:
    """What a fork will take beside what it shares with its method; if it is `filled`, from the file."""
    states = [b for b in plan.buffers if b.kind == "state"]
    uploads = sum(b.nbytes for b in states if b.fill is not None) if filled else 0
    kinds = dict.fromkeys(MEMORY_KINDS, 0) | {"state": sum(b.nbytes for b in states), "uploads": min(uploads, CHUNK)}
    return Needs(f"a fork of {plan.graph.name}", kinds, _largest(plan, states))


def _largest(plan: Plan, buffers: Sequence[Buffer]) -> tuple[tuple[str, int], ...]:
    return tuple((buffer_name(plan, b), b.nbytes) for b in sorted(buffers, key=lambda b: -b.nbytes)[:LARGEST])


def staging_bytes(plan: Plan) -> int:
    """The buffer that results are read through."""
    return max(plan.staging_bytes, SMALLEST_STAGING)


def refuse_beyond(need: Needs, offer: Offer) -> None:
    """Raise OutOfMemory if a method does not fit beside what the process holds already."""
    others = held()
    if offer.nbytes is None or not need.total or others + need.total <= offer.nbytes:
        return
    lines = [f"{need.name} needs {_size(need.total)} on the device; {_size(offer.nbytes)} may be used ({offer.source})"]
    if others >= need.total // 1000:
        lines[0] += f", of which this process holds {_size(others)} already"
    lines += [f"  {MEMORY_KINDS[kind]:<12}{_size(nbytes):>14}" for kind, nbytes in need.kinds.items() if nbytes]
    lines += [f"  of these {name}: {_size(nbytes)}" for name, nbytes in need.largest]
    lines += _what_would_fit(need, offer.nbytes, others)
    raise OutOfMemory("\n".join(lines), needed=others + need.total, budget=offer.nbytes)


def _what_would_fit(need: Needs, budget: int, others: int) -> list[str]:
    excess = others + need.total - budget
    found = []
    for kind, remedy in REMEDIES.items():
        if (nbytes := need.kinds[kind]) >= excess:
            found.append(f"{MEMORY_KINDS[kind]} of {_size(nbytes - excess)} would fit. {remedy}")
    if 2 * excess <= need.kinds["state"]:
        found.append('Caches of half the size would fit: LLM.load(path, kv_cache="f16").')
    if others >= excess:
        found.append("Without other programs, methods and forks it would fit: close() those that are not needed.")
    return found or ["No part of it alone could be made small enough."]


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.2f} MB"
