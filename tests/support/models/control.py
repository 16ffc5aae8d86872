"""Builders of programs with `torch.cond`: they export to JumpFalseCall and MoveCall."""

from __future__ import annotations

import torch
from torch import nn

from ..export.lowering import Model, forward


class Branch(nn.Module):
    """Either of two functions of x + w, and what follows both."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 8))

    def then(self, y):
        return torch.sigmoid(y) * y

    def otherwise(self, y):
        return torch.relu(y) - y

    def pick(self, y, flag):
        return torch.cond(flag, self.then, self.otherwise, (y,)) * self.w


def branch(branches: bool = False) -> Model:
    """A bool input picks the branch; delegates before and after, CPU kernels in the branches."""

    class OnInput(Branch):
        def forward(self, x, flag):
            return self.pick(x + self.w, flag)

    yes, no = torch.tensor(True), torch.tensor(False)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    return forward(OnInput(), (x, yes), [[(x, yes), (x, no), (y, no), (y, yes)]], branches=branches)


def branch_delegated() -> Model:
    """The same with a delegate in each branch."""
    return branch(branches=True)


def branch_on_data() -> Model:
    """The condition is computed by a delegate, from a sum that stays on the CPU."""

    class OnData(Branch):
        def forward(self, x):
            y = x + self.w
            return self.pick(y, y.sum() > 0)

    x = torch.randn(4, 8)
    return forward(OnData(), (x,), [[(x + 3,), (x - 3,)]], branches=True)
