"""Numbers for people."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes, with three digits and a decimal unit."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.5:  # what three digits would round up belongs to the next unit
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} GB"


def seconds(time: float) -> str:
    """A duration with three digits, in the unit that suits it."""
    if time >= 999.5:
        return f"{time:.0f} s"
    if time >= 0.9995:
        return f"{time:.3g} s"
    return f"{time * 1e3:.3g} ms" if time >= 0.9995e-3 else f"{time * 1e6:.3g} µs"
