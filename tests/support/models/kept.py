"""Small modules whose buffers a delegate keeps, as people write them."""

from __future__ import annotations

import torch

from ..export.lowering import Model, forward

ALIAS = {"alias_buffer_mutations": True}
CALLS = 5


class Keeper(torch.nn.Module):
    def __init__(self, function, buffers):
        super().__init__()
        self.function = function
        self.first = {name: value.clone() for name, value in buffers.items()}
        for name, value in buffers.items():
            self.register_buffer(name, value.clone())

    def forward(self, x):
        return self.function(self, x)

    def restart(self):
        for name, value in self.first.items():
            getattr(self, name).copy_(value)


def kept(name: str, alias: bool = False) -> Model:
    """The program of this name, over a few calls from a fresh state, twice."""
    function, buffers, shape = PROGRAMS[name]
    module = Keeper(function, buffers)
    runs = [[(torch.randn(shape),) for _ in range(CALLS)] for _ in range(2)]
    return forward(module, runs[0][0], runs, reset=module.restart, options=ALIAS if alias else {}, strict=False)


def added(m, x):
    m.n.add_(x)
    return m.n + 1


def counted(m, x):
    m.n += 1
    return x + m.n


def averaged(m, x):
    m.mean.mul_(0.9).add_(x.sum(0), alpha=0.1)
    return x - m.mean


def normalised(m, x):
    """Two averages and two weights of one shape."""
    m.mean.mul_(0.9).add_(x.sum(0), alpha=0.1)
    m.square.mul_(0.9).add_((x * x).sum(0), alpha=0.1)
    return (x - m.mean) * m.scale + m.square * m.bias


def assigned(m, x):
    m.n = m.n * 0.5 + x
    return m.n * 2


def before(m, x):
    """The old value, after the new one was written."""
    old = m.n.clone()
    m.n.copy_(x * 2)
    return x * 3 - old


def cascaded(m, x):
    m.slow.mul_(0.5).add_(m.fast * 0.5)
    m.fast.mul_(0.25).add_(x)
    return m.fast - m.slow


def unseen(m, x):
    """A state that every call writes and no output shows."""
    m.n.add_(1)
    return x * 2


def remembered(m, x):
    """Returned as it was written: only the aliased form keeps it."""
    m.n.add_(x)
    return m.n.clone()


ZEROS, WEIGHT = torch.zeros(3, 4), torch.tensor([0.5, -1.0, 2.0, 0.25])
PROGRAMS = {
    "added": (added, {"n": ZEROS}, (3, 4)),
    "counted": (counted, {"n": torch.zeros(1, dtype=torch.int64)}, (3, 4)),
    "counted from one": (counted, {"n": torch.ones(1, dtype=torch.int64)}, (3, 4)),
    "counted without dims": (counted, {"n": torch.tensor(0)}, (3, 4)),
    "averaged": (averaged, {"mean": torch.ones(4)}, (3, 4)),
    "normalised": (
        normalised,
        {"mean": torch.zeros(4), "square": torch.ones(4), "scale": WEIGHT, "bias": WEIGHT + 1},
        (3, 4),
    ),
    "assigned": (assigned, {"n": WEIGHT.expand(3, 4).contiguous()}, (3, 4)),
    "before": (before, {"n": ZEROS}, (3, 4)),
    "cascaded": (cascaded, {"fast": torch.zeros(3, 4), "slow": torch.ones(3, 4)}, (3, 4)),
    "unseen": (unseen, {"n": torch.zeros(2)}, (3, 4)),
    "remembered": (remembered, {"n": ZEROS}, (3, 4)),
}
