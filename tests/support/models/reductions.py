"""Builders of programs that reduce, normalize and pool: many ops per module, dynamic where the exporter allows.

The global seed is set before a builder is called (exporting.py), so plain `torch.randn` is deterministic here.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

from ..export.lowering import Model, forward


def reductions(bound: int = 13, lengths: tuple[int, ...] = (13, 7, 2, 13)) -> Model:
    """Sums, means and extremes of x (3, S, 5, 7) over many sets of dims."""

    class Reductions(nn.Module):
        def forward(self, x):
            return (
                x.sum(-1),
                x.sum((1, 2), keepdim=True),
                x.sum((0, 2)),
                x.sum(),
                x.mean(1),
                x.mean((-1, -2), keepdim=True),
                x.mean((1, 3)),
                x.mean(),
                x.amax(-1),
                x.amax((0, 1), keepdim=True),
                x.amax((1, 3)),
                x.amin(-1, keepdim=True),
                x.amin((2, 1)),
                x.amin(),
                x.max(),
                x.min(),
                x.var(1),
                x.var((1, 3), correction=0, keepdim=True),
                x.prod(2),
                x.prod(1, keepdim=True),
            )

    steps = [(torch.randn(3, s, 5, 7),) for s in lengths]
    return forward(
        Reductions(),
        (torch.randn(3, 11, 5, 7),),
        [steps],
        dynamic_shapes=({1: Dim("seq", min=2, max=bound)},),
        expect=("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default", "aten.amin.default"),
    )


def indices_and_integers(bound: int = 13, lengths: tuple[int, ...] = (13, 7, 2, 13)) -> Model:
    """Where extremes are, running sums, and sums of integers and bools: x (3, S, 5), i (S, 7) and b (S, 7)."""

    class Indices(nn.Module):
        def forward(self, x, i, b):
            return (
                x.argmax(-1),
                x.argmin(-1, keepdim=True),
                x.argmax(1),
                x.argmin(0),
                x.argmax(),
                *x.max(-1),
                *x.min(1, keepdim=True),
                x.cumsum(1),
                x.cumsum(-1),
                i.argmax(-1),
                i.sum(0),
                i.sum((0, 1)),
                b.sum(-1),
                b.sum(),
                i.cumsum(0),
                b.cumsum(1),
                i.amax(1),
                i.amin(0),
                i.sum(1, dtype=torch.float32),
                i.max(),
            )

    def step(s):
        few = torch.randint(0, 7, (s, 7))  # so that many are equal
        return torch.randn(3, s, 5), few, torch.rand(s, 7) < 0.5

    seq = Dim("seq", min=2, max=bound)
    return forward(
        Indices(),
        step(11),
        [[step(s) for s in lengths]],
        dynamic_shapes=({1: seq}, {0: seq}, {0: seq}),
        expect=("aten.argmax.default", "aten.argmin.default"),
    )


def spread_parameters(module: nn.Module) -> None:
    """Give weights and statistics values that show: as made they are ones and zeros."""
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5) if name.endswith("var") else tensor.normal_()


class RowNorms(nn.Module):
    """Of x (S, 12, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(8)
        self.layer_unbiased = nn.LayerNorm(8, bias=False, eps=1e-3)
        self.layer_two = nn.LayerNorm((12, 8))
        self.layer_plain = nn.LayerNorm(8, elementwise_affine=False)
        self.rms_weight = nn.Parameter(torch.empty(8))
        spread_parameters(self)

    def rms(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.rms_weight

    def forward(self, x):
        return (
            functional.softmax(x, -1),
            functional.softmax(x, 1),
            functional.softmax(x, 0),
            functional.log_softmax(x, -1),
            functional.log_softmax(x, 1),
            self.layer(x),
            self.layer_unbiased(x),
            self.layer_two(x),
            self.layer_plain(x),
            self.rms(x),
        )


class ChannelNorms(nn.Module):
    """Of signals (N, 12, L) and images (N, 12, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = nn.BatchNorm2d(12)
        self.batch_plain = nn.BatchNorm2d(12, affine=False)
        self.batch_signal = nn.BatchNorm1d(12)
        self.groups = nn.GroupNorm(4, 12)
        self.groups_plain = nn.GroupNorm(3, 12, affine=False)
        spread_parameters(self)

    def forward(self, signal, image):
        signal, image = torch.relu(signal), torch.relu(image)  # a delegate of sizes alone would fail to export
        return (
            self.batch(image),
            self.batch_plain(image),
            self.batch_signal(signal),
            self.groups(image),
            self.groups_plain(image),
            self.groups(signal),
        )


def norms(bound: int = 13, lengths: tuple[int, ...] = (13, 7, 2, 13)) -> Model:
    """All norms, with a first dim that varies. The exporter leaves dynamic group norms outside the delegate."""

    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = RowNorms()
            self.channels = ChannelNorms()

        def forward(self, x, image):
            return *self.rows(x), *self.channels(x, image)

    def step(n):
        return torch.randn(n, 12, 8) * 3 + 1, torch.randn(n, 12, 3, 8) * 2 - 1

    first = Dim("first", min=2, max=bound)
    return forward(
        Norms(),
        step(11),
        [[step(n) for n in lengths]],
        dynamic_shapes=({0: first}, {0: first}),
        expect=(
            "aten._softmax.default",
            "aten._log_softmax.default",
            "aten.native_layer_norm.default",
            "aten._native_batch_norm_legit_no_training.default",
            "et_vk.rms_norm.default",
        ),
    )


class Pools(nn.Module):
    def __init__(self, ceil: bool) -> None:
        super().__init__()
        self.ceil = ceil

    def forward(self, x):
        return (
            functional.avg_pool2d(x, 3, 2, 1),
            functional.avg_pool2d(x, (2, 3), ceil_mode=self.ceil),
            functional.avg_pool2d(x, 3, 2, 1, ceil_mode=self.ceil, count_include_pad=False),
            functional.avg_pool2d(x, 3, 1, 1, divisor_override=4),
            functional.avg_pool2d(x, 2, 3, 1, ceil_mode=self.ceil),  # rounded up, the last window is all padding
            functional.max_pool2d(x, 3, 2, 1),
            functional.max_pool2d(x, (2, 3), (2, 1), dilation=(1, 2)),
            functional.max_pool2d(x, 3, 2, 1, ceil_mode=self.ceil),
            functional.max_pool2d(x, 2, 3, 1, ceil_mode=self.ceil),
            *functional.max_pool2d(x, 2, return_indices=True),
            *functional.max_pool2d(x, 3, 2, 1, 2, ceil_mode=self.ceil, return_indices=True),
            functional.adaptive_avg_pool2d(x, 1),
            functional.adaptive_avg_pool2d(x, (3, 5)),
            functional.avg_pool2d(x[0], 2),
            functional.max_pool2d(x[0], 2),
            functional.max_pool1d(x[0], 3),
            functional.avg_pool1d(x[0], 3),
        )


def images() -> Model:
    """Windows and channels of fixed images: everything in one delegate but the adaptive pool."""

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.channels = ChannelNorms()
            self.pools = Pools(ceil=True)

        def forward(self, signal, image):
            return *self.channels(signal, image), *self.pools(image)

    def step():
        return torch.randn(3, 12, 7), torch.randn(2, 12, 13, 17)

    return forward(
        Images(),
        step(),
        [[step(), step()]],
        expect=("aten.native_group_norm.default", "aten.avg_pool2d.default", "aten.max_pool2d"),
    )


def pools_dynamic(bound: int = 19, heights: tuple[int, ...] = (19, 11, 8, 19)) -> Model:
    """Windows over images whose height varies; rounding sizes up would fix whether it is odd."""
    steps = [(torch.randn(2, 3, h, 17),) for h in heights]
    return forward(
        Pools(ceil=False),
        (torch.randn(2, 3, 13, 17),),
        [steps],
        dynamic_shapes=({2: Dim("height", min=7, max=bound)},),
        expect=("aten.avg_pool2d.default", "aten.max_pool2d"),
    )
