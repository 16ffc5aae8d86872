"""Mutable buffers, as people write them."""

import torch
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program

FOUR = range(4)


@program
def st_add() -> Case:
    """A running sum."""

    def forward(self, x):
        self.n.add_(x)
        return self.n + 1

    return case(module(forward, n=torch.zeros(3, 4)), [(randn(3, 4),) for _ in FOUR])


@program
def st_int() -> Case:
    """A counter in 64-bit integers."""

    def forward(self, x):
        self.n += 1
        return x + self.n

    return case(module(forward, n=torch.zeros(1, dtype=torch.int64)), [(randn(3, 4),) for _ in FOUR])


@program
def st_ema() -> Case:
    """A running mean, of any number of rows."""

    def forward(self, x):
        self.m.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.m

    return case(module(forward, m=torch.ones(4)), [(randn(k, 4),) for k in (7, 6, 1, 2, 5)], {0: Dim("b", max=7)})


@program
def st_ring() -> Case:
    """The last five rows."""

    def forward(self, x):
        self.h.copy_(torch.cat([self.h[1:], x]))
        return self.h.sum(0)

    return case(module(forward, h=torch.zeros(5, 4)), [(randn(1, 4),) for _ in FOUR])


@program
def st_noread() -> Case:
    """What the last call was given."""

    def forward(self, x):
        y = self.h * 2 + x
        self.h.copy_(x)
        return y

    return case(module(forward, h=torch.zeros(3, 4)), [(randn(3, 4),) for _ in FOUR])


@program
def st_idxput() -> Case:
    """A cache written by index."""

    def forward(self, x, pos):
        self.c[:, pos] = x
        return self.c.sum(1), self.c * 2

    return case(module(forward, c=torch.zeros(1, 8, 4)), [(randn(1, 1, 4), torch.tensor([k])) for k in (7, 0, 3, 5)])


@program
def st_idxcopy() -> Case:
    """A cache written by `index_copy_`."""

    def forward(self, x, pos):
        self.c.index_copy_(2, pos, x)
        return self.c.sum(2), self.c * 2

    steps = [(randn(1, 2, 1, 4), torch.tensor([k])) for k in (7, 0, 3, 5)]
    return case(module(forward, c=torch.zeros(1, 2, 8, 4)), steps)


@program
def st_slice() -> Case:
    """A cache written by a slice whose place is data."""

    def forward(self, x, pos):
        p = pos.item()
        torch._check(p >= 0)
        torch._check(p + 1 <= 8)
        self.c.narrow(1, p, 1).copy_(x)
        return self.c.sum(1)

    return case(module(forward, c=torch.zeros(1, 8, 4)), [(randn(1, 1, 4), torch.tensor(k)) for k in (7, 0, 3, 5)])


@program
def st_two() -> Case:
    """Fibonacci: two buffers that are copied into one another and returned."""

    def forward(self, x):
        t = self.a + self.b
        self.a.copy_(self.b)
        self.b.copy_(t)
        return t * x, self.a, self.b

    return case(module(forward, a=torch.zeros(3), b=torch.ones(3)), [(randn(3),) for _ in FOUR])


@program
def st_gru_state() -> Case:
    """The hidden state of a cell."""

    def forward(self, x):
        h = self.cell(x, self.h)
        self.h.copy_(h)
        return h

    return case(module(forward, cell=nn.GRUCell(4, 6), h=torch.zeros(1, 6)), [(randn(1, 4),) for _ in FOUR])


@program
def st_idxput_dyn() -> Case:
    """A cache written by index, any number of rows at a time."""

    def forward(self, x, pos):
        self.c[:, pos] = x
        return self.c.sum(1)

    n = Dim("n", max=7)
    steps = [(randn(1, k, 4), torch.arange(k) + first) for k, first in ((7, 0), (6, 7), (1, 13), (2, 14))]
    return case(module(forward, c=torch.zeros(1, 16, 4)), steps, {1: n}, {0: n})


@program
def dup_out_state() -> Case:
    """One result returned twice, beside state."""

    def forward(self, x):
        self.n.add_(x)
        y = x * 2
        return y.clone(), y.clone(), self.n + 1

    return case(module(forward, n=torch.zeros(3, 4)), [(randn(3, 4),) for _ in FOUR])


@program
def counter() -> Case:
    """A counter, a running mean and a ring in one module."""

    def forward(self, x):
        self.n += 1
        self.m.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.h.copy_(torch.cat([self.h[1:], x[:1]]))
        return x - self.m, self.n.clone(), self.h.sum(0)

    buffers = {"n": torch.zeros(1, dtype=torch.int64), "m": torch.zeros(4), "h": torch.zeros(5, 4)}
    return case(module(forward, **buffers), [(randn(k, 4),) for k in (7, 6, 1, 2, 5)], {0: Dim("b", max=7)})


@program
def bn_train() -> Case:
    """Batch normalization that learns its statistics as it runs."""
    norm = nn.BatchNorm1d(5, momentum=0.3).train()
    return case(norm, [(randn(8, 5) * k + k - 1,) for k in (1, 2, 1, 3)], as_is=True)
