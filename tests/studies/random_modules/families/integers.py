"""Integers: arithmetic, bits, indices made from sizes."""

from __future__ import annotations

from ..maker import Maker, Value, family

UNARY = (
    "{0} + 1", "{0} - 3", "{0} * 2", "7 - {0}", "{0} // 2", "{0} % 5", "-{0}", "{0}.abs()", "{0}.clamp(0, 4)",
    "{0} & 3", "{0} | 4", "{0} ^ 5", "~{0}", "{0}.float()", "{0}.float() / 3", "{0} / 2", "{0}.to(torch.int32)",
    "{0}.to(torch.int64)", "{0}.bool()", "torch.div({0}, 3, rounding_mode='trunc')", "{0} << 1", "{0} >> 1",
    "{0}.half()", "{0} * 0.5", "{0}.sign()", "torch.bitwise_not({0})", "{0}.to(torch.uint8)", "torch.relu({0})",
)  # fmt: skip
BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.maximum({0}, {1})", "torch.minimum({0}, {1})",
    "{0} // ({1}.abs() + 1)", "{0} % ({1}.abs() + 1)", "{0} & {1}", "{0} | {1}", "{0} ^ {1}",
    "torch.where({0} > {1}, {0}, {1})", "{0} / ({1}.abs() + 1)",
)  # fmt: skip


def _integer(v: Value) -> bool:
    return v.is_int


@family(3)
def unary(m: Maker) -> None:
    m.add(m.choose(UNARY), m.pick(_integer))


@family(3)
def binary(m: Maker) -> None:
    m.add(m.choose(BINARY), m.pick(_integer), m.pick(_integer))


@family(1)
def mixed(m: Maker) -> None:
    m.add(
        m.choose(("{0} + {1}", "{0} * {1}", "{1} - {0}", "{0} > {1}")), m.pick_float(), m.pick(lambda v: not v.is_float)
    )


@family(1)
def counting(m: Maker) -> None:
    """Numbers that follow from a size alone."""
    x = m.pick(lambda v: v.rank > 0)
    if x is None:
        return
    d = m.rng.randrange(x.rank)
    size = f"{{0}}.shape[{d}]"
    ways = (
        f"torch.arange({size})", f"torch.arange({size}, dtype=torch.float32) * 0.1", f"torch.ones({size}, 3)",
        f"torch.arange({size}) % 3", f"torch.zeros({size}, dtype=torch.int32)", f"torch.arange(1, {size} + 1)",
        f"torch.full(({size}, 2), 0.5)", f"torch.arange({size}).unsqueeze(1) >= torch.arange({size})",
        f"torch.ones({size}, {size}).tril()", f"torch.arange({size}) * {size}",
    )  # fmt: skip
    m.add(m.choose(ways), x)
