"""The limits on what a file may require. docs/security.md shows this table.

A few hundred bytes can require years of work: one delegate called a million times, a jump to itself, a tensor larger
than memory. Each limit is far above what exporters write, and low enough to be reached in seconds.
"""

from __future__ import annotations

from .errors import GraphError

BUDGETS: dict[str, tuple[int, str]] = {
    "calls": (100_000, "calls of a method, its delegates inlined"),
    "values": (1_000_000, "values of a method, its delegates inlined"),
    "repeated calls": (4_000, "calls of delegates that a method calls more than once, after the first time"),
    "list members": (65_536, "values in one list"),
    "dims": (8, "dims of a tensor"),
    "tensor bytes": (1 << 40, "bytes of a tensor at its bound"),
    "trial lowerings": (20_000, "trial lowerings to find which dims may vary; 16 for each call are always allowed"),
    "kernels": (4_096, "kernels to compile for a method"),
    "kernel text": (1 << 20, "characters of one kernel's WGSL"),
    "plan bytes": (1 << 28, "bytes of a saved plan, without its kernels"),
    "blocks run": (10_000, "blocks without jumps that one call of a method runs"),
}


def limit(name: str) -> int:
    """Return a limit by name."""
    return BUDGETS[name][0]


def over(name: str, asked: int) -> str:
    """Return the message for a file that exceeds a limit."""
    maximum, meaning = BUDGETS[name]
    return f"{asked:,} {meaning}; at most {maximum:,} are allowed"


def spend(name: str, asked: int, where: str) -> None:
    """Raise GraphError if a file exceeds a limit."""
    if asked > limit(name):
        raise GraphError(f"{where}: {over(name, asked)}", code="over_budget")
