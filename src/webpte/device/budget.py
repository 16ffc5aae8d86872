"""The memory that a method needs, computed before any of it is allocated."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from ..errors import OutOfMemory
from ..plan import REMEDIES, Buffer, Plan, buffer_name, padded
from ..text import lines, sanitize_line, size, table
from .memory import MemoryLimit, allocated_bytes
from .parameters import parameter_bytes
from .weights import UPLOAD_CHUNK_BYTES, constant_key

MIN_STAGING_BYTES = 256  # enough for the tokens of several steps
MAX_LISTED_BUFFERS = 3  # in an error
MEMORY_KINDS = {  # kind -> its name in messages
    "constant": "weights",
    "state": "state",
    "activation": "activations",
    "readback": "readback",
    "parameters": "parameters",
    "uploads": "uploads",
}


@dataclass(frozen=True, repr=False)
class MemoryNeeds:
    """The bytes on the device by kind. "uploads" is the maximum that the queue holds; all others are buffers."""

    name: str
    kinds: dict[str, int]
    largest: tuple[tuple[str, int], ...]  # buffers and their bytes

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
        """Return the size of each kind that is not empty, by its name in messages, and the sum."""
        kinds = {MEMORY_KINDS[kind]: size(nbytes) for kind, nbytes in self.kinds.items() if nbytes}
        return {**kinds, "all": size(self.total)}


@dataclass(frozen=True, repr=False)
class Memory:
    """The bytes on the device by kind, when every method of a program is loaded."""

    name: str  # of the program
    methods: dict[str, MemoryNeeds]  # of each alone
    kinds: dict[str, int]  # of all together; shared weights count once

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    def __repr__(self) -> str:
        return lines(f"Memory of {sanitize_line(self.name)}", self._rows())

    def _repr_html_(self) -> str:
        return table(f"Memory of {self.name}", self._rows())

    def _rows(self) -> dict[str, str]:
        by_method = {sanitize_line(name): memory_line(need) for name, need in self.methods.items()}
        return {**by_method, "together": memory_line(MemoryNeeds(self.name, self.kinds, ()))}


def memory_needs(plan: Plan, present: Container[object] = ()) -> MemoryNeeds:
    """Return the memory that a method needs, without the constants that are present already."""
    required = [b for b in plan.buffers if b.kind != "constant" or constant_key(b) not in present]
    kinds = {kind: sum(b.nbytes for b in required if b.kind == kind) for kind in ("constant", "state", "activation")}
    filled = sum(b.nbytes for b in required if b.fill is not None)
    inputs = [sum(padded(plan.stored_bytes(v)) for v in values) for values in plan.uploads.values()]
    kinds["readback"] = staging_bytes(plan)
    kinds["parameters"] = parameter_bytes(plan.parameter_blocks)
    kinds["uploads"] = max(min(filled, UPLOAD_CHUNK_BYTES), *inputs, 0)
    return MemoryNeeds(plan.graph.name, kinds, _largest(plan, required))


def state_memory_needs(plan: Plan, filled: bool) -> MemoryNeeds:
    """Return the memory that a fork needs beyond what it shares with its method. `filled` state is uploaded."""
    states = [b for b in plan.buffers if b.kind == "state"]
    uploads = sum(b.nbytes for b in states if b.fill is not None) if filled else 0
    kinds = dict.fromkeys(MEMORY_KINDS, 0) | {
        "state": sum(b.nbytes for b in states),
        "uploads": min(uploads, UPLOAD_CHUNK_BYTES),
    }
    return MemoryNeeds(f"a fork of {plan.graph.name}", kinds, _largest(plan, states))


def _largest(plan: Plan, buffers: Sequence[Buffer]) -> tuple[tuple[str, int], ...]:
    return tuple(
        (buffer_name(plan, b), b.nbytes) for b in sorted(buffers, key=lambda b: -b.nbytes)[:MAX_LISTED_BUFFERS]
    )


def staging_bytes(plan: Plan) -> int:
    """Return the size of the buffer that results are read through."""
    return max(plan.staging_bytes, MIN_STAGING_BYTES)


def check_memory(need: MemoryNeeds, limit: MemoryLimit) -> None:
    """Raise OutOfMemory if a method does not fit beside the buffers that the process has already."""
    others = allocated_bytes()
    if limit.nbytes is None or not need.total or others + need.total <= limit.nbytes:
        return
    lines = [
        f"{need.name} needs {_size(need.total)} on the device; the limit is {_size(limit.nbytes)} ({limit.source})"
    ]
    if others >= need.total // 1000:
        lines[0] += f", of which this process has allocated {_size(others)} already"
    lines += [f"  {MEMORY_KINDS[kind]:<12}{_size(nbytes):>14}" for kind, nbytes in need.kinds.items() if nbytes]
    lines += [f"  of these {name}: {_size(nbytes)}" for name, nbytes in need.largest]
    lines += _remedies(need, limit.nbytes, others)
    raise OutOfMemory("\n".join(lines), needed=others + need.total, budget=limit.nbytes)


def _remedies(need: MemoryNeeds, budget: int, others: int) -> list[str]:
    """Return what would make the method fit, one sentence per remedy."""
    excess = others + need.total - budget
    remedies = []
    for kind, remedy in REMEDIES.items():
        if (nbytes := need.kinds[kind]) >= excess:
            remedies.append(f"{MEMORY_KINDS[kind]} of {_size(nbytes - excess)} would fit. {remedy}")
    if 2 * excess <= need.kinds["state"]:
        remedies.append('Caches of half the size would fit: LLM.load(path, kv_cache="f16").')
    if others >= excess:
        remedies.append("Without other programs, methods and forks it would fit: close() those that are not needed.")
    return remedies or ["Reducing one kind of memory is not enough."]


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.2f} MB"


def program_memory(name: str, plans: Mapping[str, Plan]) -> Memory:
    """Return the memory of all methods. Those that run nothing on the device need none."""
    present: set[object] = set()
    kinds = dict.fromkeys(MEMORY_KINDS, 0)
    for plan in plans.values():
        if not plan.flow.segments:
            continue
        for kind, nbytes in memory_needs(plan, present).kinds.items():
            # Uploads are the maximum that the queue holds at a time, not a sum.
            kinds[kind] = max(kinds[kind], nbytes) if kind == "uploads" else kinds[kind] + nbytes
        present |= {constant_key(buffer) for buffer in plan.buffers if buffer.kind == "constant"}
    nothing = dict.fromkeys(MEMORY_KINDS, 0)
    by_method = {
        n: memory_needs(plan) if plan.flow.segments else MemoryNeeds(n, nothing, ()) for n, plan in plans.items()
    }
    return Memory(name, by_method, kinds)


def memory_line(needs: MemoryNeeds) -> str:
    """Return the kinds that are not empty, and the sum, in one line."""
    return ", ".join(f"{kind} {text}" for kind, text in needs.rows().items())
