"""Reductions, softmax, sums along a dim, and what finds positions."""

from __future__ import annotations

import torch

from ..maker import Maker, family

ONE_DIM = (
    "{0}.mean({d}, keepdim={k})", "{0}.sum({d}, keepdim={k})", "{0}.amax({d}, keepdim={k})",
    "{0}.amin({d}, keepdim={k})", "{0}.var({d}, unbiased=False, keepdim={k})", "{0}.norm(dim={d}, keepdim={k})",
    "torch.logsumexp({0}, {d}, keepdim={k})", "{0}.argmax({d}, keepdim={k})", "{0}.argmin({d}, keepdim={k})",
    "{0}.max({d}, keepdim={k})[0]", "{0}.std({d}, unbiased=False, keepdim={k})", "{0}.abs().sum({d}, keepdim={k})",
    "({0} > 0).any({d}, keepdim={k})", "({0} > -1).all({d}, keepdim={k})", "{0}.prod({d}, keepdim={k})",
)  # fmt: skip
WHOLE = (
    "{0}.mean()",
    "{0}.sum()",
    "{0}.amax()",
    "{0}.max()",
    "{0}.argmax()",
    "({0} > 0).any()",
    "{0}.var(unbiased=False)",
)
ALONG = (
    "torch.softmax({0}, {d})", "torch.log_softmax({0}, {d})", "{0}.cumsum({d})", "F.normalize({0}, dim={d})",
    "F.softmin({0}, {d})", "{0}.sort({d})[0]", "{0}.flip({d})", "{0} - {0}.mean({d}, keepdim=True)",
    "{0} / ({0}.abs().sum({d}, keepdim=True) + 1)", "torch.softmax({0}.float(), {d}).to({0}.dtype)",
)  # fmt: skip


def _dim(m: Maker, rank: int) -> int:
    dim = m.rng.randrange(rank)
    return dim - rank if m.chance(0.5) else dim


@family(5)
def one_dim(m: Maker) -> None:
    x = m.pick_float(1)
    if x is not None:
        m.add(_fill(m.choose(ONE_DIM), d=_dim(m, x.rank), k=m.chance(0.5)), x)


@family(1)
def two_dims(m: Maker) -> None:
    x = m.pick_float(2)
    if x is not None:
        dims = m.rng.sample(range(x.rank), 2)
        m.add(_fill(m.choose(ONE_DIM[:5]), d=tuple(dims), k=m.chance(0.5)), x)


@family(1)
def whole(m: Maker) -> None:
    m.add(m.choose(WHOLE), m.pick_float(1))


@family(4)
def along(m: Maker) -> None:
    x = m.pick_float(1)
    if x is not None:
        m.add(_fill(m.choose(ALONG), d=_dim(m, x.rank)), x)


@family(1)
def of_integers(m: Maker) -> None:
    x = m.pick(lambda v: not v.is_float and v.rank > 0)
    if x is None:
        return
    ways = ("{0}.sum({d})", "{0}.any({d})", "{0}.all({d})") if x.dtype == torch.bool else (
        "{0}.sum({d})", "{0}.amax({d})", "{0}.cumsum({d})", "{0}.argmax({d})", "{0}.float().mean({d})", "{0}.amin({d})"
    )  # fmt: skip
    m.add(_fill(m.choose(ways), d=_dim(m, x.rank)), x)


@family(1)
def best(m: Maker) -> None:
    """Values and where they were; ties would be anyone's choice."""
    x = m.pick_float(1, lambda v: v.static(-1) is not None)
    if x is None:
        return
    if m.chance(0.5):
        m.add(f"torch.topk({{0}}, {m.rng.randint(1, x.static(-1) or 1)})", x, results=2)
    else:
        m.add(_fill("torch.max({0}, {d})", d=_dim(m, x.rank)), x, results=2)


def _fill(code: str, **values: object) -> str:
    for name, value in values.items():
        code = code.replace(f"{{{name}}}", str(value))
    return code
