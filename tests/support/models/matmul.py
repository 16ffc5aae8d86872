"""Builders of programs made of matrix products and convolutions: many ops each, dynamic sizes wherever possible."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Model, forward


class Products(nn.Module):
    """Every product, its right operand a parameter or an input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(13, 7)
        self.second = nn.Linear(13, 8, bias=False)
        self.square = nn.Parameter(torch.randn(13, 13) / 4)
        self.weight = nn.Parameter(torch.randn(13, 6) / 4)
        self.row = nn.Parameter(torch.randn(6))

    def forward(self, x, y, vector):
        # x (S, 13), y (3, S, 4), vector (13,)
        scores = torch.bmm(y, y.transpose(1, 2))  # (3, S, S)
        return (
            self.first(x),
            self.second(x),
            self.second(x.unsqueeze(0).unsqueeze(0)),
            self.first(vector),
            torch.mm(x, self.weight),
            x @ self.square @ x.t(),
            torch.addmm(self.row, x, self.weight),
            torch.addmm(self.row, x, self.weight, beta=0.5, alpha=-2.0),
            torch.addmm(x, x, self.square, beta=2, alpha=3),
            torch.addmm(x[:, :1], x, self.weight),
            scores,
            torch.bmm(scores, y),
            torch.baddbmm(y, scores, y, beta=0.5, alpha=0.25),
            torch.matmul(y, y.transpose(1, 2)[0]),
        )


def products(bound: int = 23, lengths: tuple[int, ...] = (23, 11, 4, 1, 23)) -> Model:
    def step(length: int):
        return torch.randn(length, 13), torch.randn(3, length, 4), torch.randn(13)

    seq = Dim("seq", max=bound)
    expect = ("aten.linear.default", "aten.mm.default", "aten.bmm.default", "aten.addmm.default")
    return forward(
        Products(), step(7), [[step(n) for n in lengths]], dynamic_shapes=({0: seq}, {1: seq}, {}), expect=expect
    )


class Every(nn.Module):
    """One output per layer, all of the same input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return tuple(layer(x) for layer in self.layers)


class Unbatched(nn.Sequential):
    def forward(self, x):
        return super().forward(x[0])


def convolutions_1d(bound: int = 29, lengths: tuple[int, ...] = (29, 17, 8, 5)) -> Model:
    layers = Every(
        nn.Conv1d(6, 5, 3),
        nn.Conv1d(6, 7, 4, stride=2, padding=3, dilation=2, bias=False),
        nn.Conv1d(6, 6, 5, padding=2, groups=6),
        nn.Conv1d(6, 9, 3, padding=1, groups=3),
        nn.Conv1d(6, 4, 1),
        nn.ConvTranspose1d(6, 5, 4, stride=3, padding=1, output_padding=2),
        nn.ConvTranspose1d(6, 4, 3, groups=2, dilation=2, bias=False),
    )
    steps = [(torch.randn(2, 6, n),) for n in lengths]
    shapes = ({2: Dim("length", min=4, max=bound)},)
    expect = ("aten.convolution.default",)
    return forward(layers, (torch.randn(2, 6, 9),), [steps], dynamic_shapes=shapes, expect=expect)


def layers_2d() -> Every:
    return Every(
        nn.Conv2d(6, 5, 3, padding=1),
        nn.Conv2d(6, 7, (3, 5), stride=(2, 3), padding=(0, 4), dilation=(2, 1), bias=False),
        nn.Conv2d(6, 6, 3, padding=1, groups=6),
        nn.Conv2d(6, 12, (3, 2), groups=6),
        nn.Conv2d(6, 9, 3, padding=1, groups=3),
        nn.Conv2d(6, 4, 1),
        nn.Conv2d(6, 4, 1, stride=2, bias=False),
        nn.Conv2d(6, 3, 3, padding="same", dilation=2),
        nn.ConvTranspose2d(6, 4, 3),
        nn.ConvTranspose2d(6, 5, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2)),
        nn.ConvTranspose2d(6, 6, 3, stride=2, groups=6, bias=False),
        nn.ConvTranspose2d(6, 4, (2, 3), stride=2, dilation=(3, 2), groups=2),
        nn.Sequential(nn.Conv2d(6, 5, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 5, 1), nn.ReLU6()),
        nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.Hardtanh(-0.25, 0.5)),
    )


SIZES = ((13, 11), (7, 11), (13, 6), (5, 5), (8, 9), (13, 11))
HEIGHT, WIDTH = Dim("height", min=5, max=13), Dim("width", min=5, max=11)


def convolutions_2d() -> Model:
    """Height and width are dynamic. The exporter delegates no batch but 1."""
    steps = [(torch.randn(1, 6, h, w),) for h, w in SIZES]
    layers = Every(*layers_2d().layers, Unbatched(nn.Conv2d(6, 5, 3, padding=1)))
    expect = ("aten.convolution.default", "et_vk.conv_with_clamp.default")
    return forward(layers, (torch.randn(1, 6, 7, 8),), [steps], dynamic_shapes=({2: HEIGHT, 3: WIDTH},), expect=expect)


def convolutions_batched() -> Model:
    """Batch, height and width are dynamic; the convolutions are called outside the delegate."""
    steps = [(torch.randn(3 - i % 3, 6, h, w),) for i, (h, w) in enumerate(SIZES)]
    shapes = ({0: Dim("batch", max=3), 2: HEIGHT, 3: WIDTH},)
    return forward(
        layers_2d(), (torch.randn(2, 6, 7, 8),), [steps], dynamic_shapes=shapes, expect=("aten::convolution",)
    )


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(13, 8)
        self.weight = nn.Parameter(torch.randn(13, 6) / 4)
        self.row = nn.Parameter(torch.randn(6))
        self.filters = nn.Conv1d(13, 5, 3, padding=1)
        self.plain = nn.Conv1d(13, 5, 1, bias=False)

    def forward(self, x):
        turned = x.t().unsqueeze(0)  # (1, 13, S)
        return (
            self.linear(x),
            torch.mm(x, self.weight),
            torch.addmm(self.row, x, self.weight),
            torch.bmm(turned.transpose(1, 2), turned),
            self.filters(turned),
            self.plain(turned),
        )


def halves(bound: int = 17, lengths: tuple[int, ...] = (17, 5, 2)) -> Model:
    """Everything in float16."""
    steps = [(torch.randn(n, 13).half(),) for n in lengths]
    shapes = ({0: Dim("seq", max=bound)},)
    return forward(Halves().half(), (torch.randn(7, 13).half(),), [steps], dynamic_shapes=shapes)


class Volumes(nn.Module):
    """Three spatial axes, which no delegate takes: the kernel is called outside."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv3d(3, 5, 3, padding=1, stride=(1, 2, 1))
        self.grouped = nn.Conv3d(3, 6, (2, 3, 1), groups=3, bias=False)
        self.up = nn.ConvTranspose3d(3, 4, 2, stride=2, output_padding=(1, 0, 1))

    def forward(self, x):
        return self.plain(x), self.grouped(x), self.up(torch.relu(x))


def volumes() -> Model:
    steps = [(torch.randn(2, 3, d, 5, 7),) for d in (7, 5, 3)]
    shapes = ({2: Dim("depth", min=3, max=7)},)
    return forward(Volumes(), (torch.randn(2, 3, 4, 5, 7),), [steps], dynamic_shapes=shapes)
