"""Builders of small programs: constants, several delegates, several methods, dtypes, dynamic sizes.

The global seed is set before a builder is called (exporting.py), so plain `torch.randn` is deterministic here.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Method, Model, forward


class Add(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 8))

    def forward(self, x):
        return x + self.w


def add() -> Model:
    x = torch.randn(4, 8)
    return forward(Add(), (x,), [[(x,), (torch.randn(4, 8),)]])


def add_external() -> Model:
    """The constant lives in a .ptd file beside the program."""
    model = add()
    model.options = {"external_constants_max_data_bytes": 1 << 20}
    return model


def add_tied() -> Model:
    """One parameter, two consumers."""

    class Tied(Add):
        def forward(self, x):
            return (x + self.w) * self.w

    x = torch.randn(4, 8)
    return forward(Tied(), (x,), [[(x,)]])


def add_equal_bytes() -> Model:
    """Two parameters that happen to be equal: one named-data key, two values."""

    class Equal(Add):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Parameter(self.w.detach().clone())

        def forward(self, x):
            return (x + self.w) * self.v

    x = torch.randn(4, 8)
    return forward(Equal(), (x,), [[(x,)]])


def mixed_kernels() -> Model:
    """Three delegates with `cumsum`, which joins the plan, and `topk`, which stays on the CPU, between them."""

    class Mixed(nn.Module):
        def forward(self, x):
            y = torch.relu(x + 1.0)
            y = torch.sigmoid(torch.cumsum(y, dim=1))
            values, indices = torch.topk(y, k=3, dim=1)
            return values * 2.0, indices

    x = torch.randn(4, 8) * 0.3  # small, so that sigmoid does not saturate and topk has no ties
    return forward(Mixed(), (x,), [[(x,), (torch.randn(4, 8) * 0.3,)]])


def two_methods() -> Model:
    """`forward` and `other` share one weight; `forward` has one of its own."""

    class Forward(Add):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Parameter(torch.randn(8))

        def forward(self, x):
            return (x + self.w) * self.v

    class Other(nn.Module):
        def __init__(self, w: nn.Parameter) -> None:
            super().__init__()
            self.w = w

        def forward(self, x, y):
            return x * self.w - y

    first = Forward().eval()
    second = Other(first.w).eval()
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    return Model({"forward": Method(first, (x,), [[(x,)]]), "other": Method(second, (x, y), [[(x, y)]])})


def dynamic_broadcast(bound: int = 29, lengths: tuple[int, ...] = (17, 5, 29, 1, 17)) -> Model:
    """relu(x * w + y) with x (S, 8), a constant w (8,) and y (S, 1)."""

    class Broadcast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(8))

        def forward(self, x, y):
            return torch.relu(x * self.w + y)

    steps = [(torch.randn(s, 8), torch.randn(s, 1)) for s in lengths]
    seq = Dim("seq", max=bound)
    return forward(Broadcast(), (torch.randn(7, 8), torch.randn(7, 1)), [steps], dynamic_shapes=({0: seq}, {0: seq}))


def dynamic_size_output(bound: int = 29, lengths: tuple[int, ...] = (13, 4, 29)) -> Model:
    """Returns a tensor and an integer computed from its size."""

    class Sized(nn.Module):
        def forward(self, x):
            return torch.relu(x), x.shape[0] * 2 + 1

    steps = [(torch.randn(s, 8),) for s in lengths]
    return forward(Sized(), (torch.randn(5, 8),), [steps], dynamic_shapes=({0: Dim("seq", max=bound)},))


def integers() -> Model:
    """int64 in; bool, int64 and float out."""

    class Integers(nn.Module):
        def forward(self, i, j, x):
            return i < j, i + j, (i.float() * x)

    def step():
        return torch.randint(-1000, 1000, (5, 7)), torch.randint(-1000, 1000, (5, 7)), torch.randn(5, 7)

    return forward(Integers(), step(), [[step(), step()]])


def doubles() -> Model:
    """float64 in and out.  The delegate takes none: casts stay on the CPU around it."""

    class Doubles(Add):
        def forward(self, x):
            return torch.sigmoid(x.float() + self.w).double()

    x = torch.randn(4, 8, dtype=torch.float64)
    return forward(Doubles(), (x,), [[(x,), (x + 0.5,)]])


def half() -> Model:
    """float16 in and out, computed in float16 by the delegate."""

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 8).half())

        def forward(self, x):
            return torch.relu(x * self.w + x)

    x = torch.randn(4, 8).half()
    return forward(Half(), (x,), [[(x,)]])
