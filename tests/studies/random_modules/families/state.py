"""State that outlives a call: counters, averages, caches and rings, written in all the ways people write them."""

from __future__ import annotations

import torch

from ..maker import Maker, Value, family

# What buffers hold at first. The exporter drops any other numbers outside delegates, unless a pass is asked not to.
FIRST = (0.0, 0.0, -0.0)


def _numbers(m: Maker) -> str:
    return m.choose(("float32", "float32", "int64", "int32"))


@family(1)
def counter(m: Maker) -> None:
    dtype = _numbers(m)
    own = m.buffer(dtype, m.choose(([], [1], [3])), int(m.choose(FIRST)))
    m.add(m.choose((f"{own}.add_(1)", f"{own}.copy_({own} + 1)", f"{own}.add_(2).sub_(1)")), results=0)
    if m.chance(0.8):
        # Not state as it is: a delegate that returns it leaves the same file as one that returns a constant plus 1.
        m.add(m.choose((f"{own} * 1", f"{own} + 1", f"{own}.float() * 0.5", f"{own} - 1")))


@family(2)
def average(m: Maker) -> None:
    """A running mean of what every call brings, in any shape of the program that is static."""
    x = m.pick_float(1, lambda v: v.static(-1) is not None and v.dtype == torch.float32)
    if x is None:
        return
    own = m.buffer("float32", [x.static(-1) or 1], m.choose(FIRST))
    row = "{0}.reshape(-1, {0}.shape[-1]).mean(0)"
    ways = (
        f"{own}.mul_(0.9).add_({row}, alpha=0.1)",
        f"{own}.copy_({own} * 0.9 + {row})",
        f"{own}.lerp_({row}, 0.2)",
        f"{own}.add_({row})",
    )
    read_first = m.chance(0.4)
    if read_first:
        m.add(f"{{0}} - {own}", x)
    m.add(m.choose(ways), x, results=0)
    if not read_first or m.chance(0.3):
        m.add(m.choose((f"{{0}} + {own}", f"{{0}} * {own}", f"{own} * 2 + {{0}}")), x)


@family(2)
def cache(m: Maker) -> None:
    """Rows written at a position that is counted in a buffer, or given; the whole of it is read."""
    x = m.pick_float(1, lambda v: v.static(-1) is not None and v.dtype == torch.float32)
    if x is None:
        return
    rows, width = m.choose((5, 8)), x.static(-1) or 1
    args: tuple[Value, ...]
    own = m.buffer("float32", [rows, width])
    row = "{0}.reshape(-1, {0}.shape[-1])[:1]"
    positions, counted = m.pick(lambda v: v.dtype == torch.int64), ""
    if positions is not None and m.chance(0.5):
        at, args = f"({{1}}.reshape(-1)[:1] % {rows})", (x, positions)
    else:
        position = m.buffer("int64", [1])
        at, args = f"({position} % {rows})", (x,)
        counted = position
    ways = (
        f"{own}.index_put_(({at},), {row})", f"{own}.index_copy_(0, {at}, {row})", f"{own}[{at}] = {row}",
        f"{own}.copy_(torch.cat([{own}[1:], {row}]))", f"{own}[2:3] = {row}", f"{own}[-1] = {row}[0]",
        f"{own}[:, 0].copy_({row}.sum().expand({rows}))", f"{own}.copy_(torch.roll({own}, 1, 0) + {row})",
    )  # fmt: skip
    code = m.choose(ways)
    if " = " in code:
        target, value = code.split(" = ")
        code = f"{target.split('[')[0]}.__setitem__({_subscript(target)}, {value})"
    m.add(code, *args, results=0)
    if counted:
        m.add(f"{counted}.add_(1)", results=0)
    if m.chance(0.85):
        m.add(m.choose((f"{own} * 1.5", f"{{0}} @ {own}.t()", f"{own}.sum(0) + {{0}}", f"{own}[1:].mean()")), x)


def _subscript(target: str) -> str:
    """Return what stands between the brackets of an assignment, as an argument."""
    inside = target[target.index("[") + 1 : target.rindex("]")]
    if ":" in inside and "(" not in inside:
        start, _, stop = inside.partition(":")
        return f"slice({start or None}, {stop or None})"
    return inside
