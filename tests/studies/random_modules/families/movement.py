"""Ops that move numbers and do not change them."""

from __future__ import annotations

import torch

from ..maker import Maker, Value, family


def _any(m: Maker, rank: int = 1) -> Value | None:
    return m.pick(lambda v: v.rank >= rank)


@family(3)
def turn(m: Maker) -> None:
    x = _any(m, 2)
    if x is None:
        return
    if m.chance(0.5):
        a, b = m.rng.sample(range(x.rank), 2)
        m.add(f"{{0}}.transpose({a}, {b})" + m.choose(("", "", ".contiguous()")), x)
    else:
        order = list(range(x.rank))
        m.rng.shuffle(order)
        m.add(f"{{0}}.permute({order})", x)


@family(5)
def shape(m: Maker) -> None:
    """Reshapes that sizes allow: dims merged, split by a divisor, dropped, or added."""
    x = _any(m, 0)
    if x is None:
        return
    ways = [
        f"{{0}}.unsqueeze({m.rng.randint(0, x.rank)})",
        "{0}.reshape(-1)",
        f"{{0}}.unsqueeze({m.rng.randint(-x.rank - 1, -1)})",
    ]
    ways += [f"{{0}}.squeeze({d})" for d, size in enumerate(x.dims) if size == 1] * 2
    if x.rank > 1:
        d = m.rng.randrange(x.rank - 1)
        ways += [f"{{0}}.flatten({d}, {d + 1})"] * 2 + ["{0}.reshape({0}.shape[0], -1)", "{0}.view(-1, {0}.shape[-1])"]
    for d, size in enumerate(x.dims):
        if isinstance(size, int) and size % 2 == 0:
            ways += [f"{{0}}.unflatten({d}, (2, {size // 2}))", f"{{0}}.unflatten({d}, ({size // 2}, 2))"]
    m.add(m.choose(ways), x)


@family(5)
def part(m: Maker) -> None:
    """Slices and elements, also from the end and with steps."""
    x = _any(m)
    if x is None:
        return
    d = m.rng.randrange(x.rank)
    before = ":, " * d
    least = x.least(d)
    start = m.rng.randrange(least)
    ways = [
        f"{{0}}[{before}{start}]",
        f"{{0}}[{before}-1]",
        f"{{0}}[{before}{start}:]",
        f"{{0}}[{before}:{start + 1}]",
        f"{{0}}[{before}::2]",
    ]
    ways += [f"{{0}}.narrow({d}, 0, {start + 1})", f"{{0}}.select({d}, {start})", f"{{0}}[{before}-{start + 1}:]"]
    if least > 1:
        ways += [
            f"{{0}}[{before}:-1]",
            f"{{0}}[{before}1:] - {{0}}[{before}:-1]" if x.is_float else f"{{0}}[{before}1:]",
        ]
    if x.rank > 1:
        ways.append("{0}[..., 0]")
    m.add(m.choose(ways), x)


@family(2)
def pieces(m: Maker) -> None:
    x = m.pick(lambda v: v.rank > 0 and any((v.static(d) or 0) > 1 for d in range(v.rank)))
    if x is None:
        return
    d = m.choose([d for d in range(x.rank) if (x.static(d) or 0) > 1])
    size = x.static(d) or 0
    cut = m.rng.randint(1, size - 1)
    if size % 2 == 0 and m.chance(0.5):
        m.add(f"{{0}}.chunk(2, {d})", x, results=2)
    elif size <= 4 and m.chance(0.3):
        m.add(f"{{0}}.unbind({d})", x, results=size)
    else:
        m.add(f"torch.split({{0}}, [{cut}, {size - cut}], {d})", x, results=2)


@family(4)
def joined(m: Maker) -> None:
    x = _any(m)
    if x is None:
        return
    d = m.rng.randrange(x.rank)

    def fits(v: Value) -> bool:
        same = all(a == b and a is not None for i, (a, b) in enumerate(zip(v.dims, x.dims, strict=True)) if i != d)
        return same and (v.dtype == x.dtype or m.chance(0.1))

    other = m.pick(lambda v: v.rank == x.rank and fits(v)) or x
    if m.chance(0.7):
        m.add(
            f"torch.cat([{{0}}, {{1}}], {d})" if m.chance(0.8) else f"torch.cat([{{0}}, {{1}}, {{0}}], {d})", x, other
        )
    else:
        m.add(f"torch.stack([{{0}}, {{1}}], {d})", x, m.pick_like(x))


@family(3)
def larger(m: Maker) -> None:
    x = _any(m)
    if x is None:
        return
    d = m.rng.randrange(x.rank)
    ones = [i for i, size in enumerate(x.dims) if size == 1]
    ways = [
        f"{{0}}.repeat({', '.join('2' if i == d else '1' for i in range(x.rank))})",
        f"{{0}}.flip({d})",
        f"{{0}}.roll(1, {d})",
    ]
    ways += [f"{{0}}.expand(2, {', '.join(['-1'] * x.rank)})", f"{{0}}.repeat_interleave(2, {d})"]
    if x.is_float:
        ways += [f"F.pad({{0}}, ({m.rng.randint(0, 2)}, {m.rng.randint(0, 2)}), value={m.choose((0.0, 1.5))})"] * 2
    for i in ones:
        ways += [f"{{0}}.expand({', '.join('3' if j == i else '-1' for j in range(x.rank))})"] * 2
    if ones and (like := m.pick(lambda v: v.rank == x.rank)) is not None:
        m.add("{0}.expand_as({1})", x, like)
    else:
        m.add(m.choose(ways), x)


@family(3)
def gathered(m: Maker) -> None:
    """Rows and elements by computed indices, which are kept inside what they index."""
    x = _any(m)
    index = m.pick(lambda v: v.is_int and v.dtype != torch.int8)
    if x is None or index is None:
        return
    d = m.rng.randrange(x.rank)
    inside = f"({{1}}.long() % {{0}}.shape[{d}])"
    before = ":, " * d
    ways = [f"{{0}}[{before}{inside}]", f"torch.index_select({{0}}, {d}, {inside}.reshape(-1))"]
    if x.rank == index.rank:
        ways.append(f"torch.gather({{0}}, {d}, {inside})")
    m.add(m.choose(ways), x, index)


@family(1)
def masked(m: Maker) -> None:
    x = m.pick_float(2)
    m.add(m.choose(("{0}.tril()", "{0}.triu(1)", "torch.tril({0}, -1)")), x)


@family(1)
def scattered(m: Maker) -> None:
    """Writes into a copy: functional forms of indexed assignment."""
    x = m.pick_float(1)
    if x is None:
        return
    d = m.rng.randrange(x.rank)
    at = m.rng.randrange(x.least(d))
    ways = [
        f"torch.select_scatter({{0}}, {{0}}.select({d}, {at}) * 2, {d}, {at})",
        f"torch.slice_scatter({{0}}, {{0}}.narrow({d}, 0, {at + 1}) + 1, {d}, 0, {at + 1})",
        f"{{0}}.index_fill({d}, torch.tensor([{at}]), 0.5)",
        f"{{0}}.index_add({d}, torch.tensor([{at}]), {{0}}.narrow({d}, 0, 1))",
    ]
    m.add(m.choose(ways), x)
