"""Convolutions, pooling, interpolation and padding."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, program


@program
def conv1d_dil() -> Case:
    """Dilated, depthwise and strided, any length."""
    layers = nn.Sequential(
        nn.Conv1d(5, 7, 3, dilation=3, padding=2),
        nn.GELU(),
        nn.Conv1d(7, 7, 5, groups=7, padding=2),
        nn.ReLU(),
        nn.Conv1d(7, 3, 4, stride=3, bias=False),
    )
    return case(layers, [(randn(2, 5, k),) for k in (203, 200, 20, 21, 77)], {2: Dim("l", min=20, max=203)})


@program
def conv2d_mix() -> Case:
    """Grouped, transposed and dilated, with a batch norm, any size."""
    norm = nn.BatchNorm2d(6)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=(2, 1), padding=(1, 0)),
        norm,
        nn.Hardswish(),
        nn.Conv2d(6, 12, (3, 5), groups=3, padding=(1, 2)),
        nn.LeakyReLU(0.1),
        nn.ConvTranspose2d(12, 5, 3, stride=2, padding=1, output_padding=1),
        nn.Tanh(),
        nn.Conv2d(5, 5, 3, groups=5, padding=2, dilation=2),
    )
    steps = [(randn(1, 3, a, b),) for a, b in ((45, 37), (41, 33), (8, 8), (9, 36), (44, 9))]
    return case(layers, steps, {2: Dim("h", min=8, max=45), 3: Dim("w", min=8, max=37)})


@program
def conv_transpose_grouped() -> Case:
    layers = nn.Sequential(
        nn.ConvTranspose2d(6, 9, (3, 4), stride=(2, 3), groups=3, padding=(1, 2), output_padding=(1, 0)),
        nn.SiLU(),
        nn.ConvTranspose2d(9, 2, 2, stride=2, bias=False),
    )
    return case(layers, [(randn(2, 6, k, 7),) for k in (17, 15, 3, 4, 10)], {2: Dim("h", min=3, max=17)})


@program
def conv_transpose1d() -> Case:
    layer = nn.ConvTranspose1d(4, 6, 5, stride=3, padding=1, output_padding=2, groups=2)
    return case(layer, [(randn(3, 4, k),) for k in (23, 21, 3, 8)], {2: Dim("l", min=3, max=23)})


@program
def conv3d() -> Case:
    return case(nn.Conv3d(2, 4, 3, padding=1), [(randn(1, 2, 5, 6, 7),) for _ in range(4)])


@program
def convbatch() -> Case:
    """Any batch and any height, through a convolution into a linear layer."""

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Conv2d(2, 4, 3, padding=1)
            self.l = nn.Linear(4, 3)

        def forward(self, x):
            y = self.c(x).relu()
            z = y.flatten(2).transpose(1, 2)
            return self.l(z).amax(1), y.mean(1), z

    steps = [(randn(i, 2, j, 6),) for i, j in ((4, 20), (3, 19), (1, 5), (2, 11))]
    return case(Features(), steps, {0: Dim("b", max=4), 2: Dim("h", min=5, max=20)})


@program(tolerance=1e-4)
def big_conv() -> Case:
    """An activation of 136 MB, above what one binding holds on most devices."""
    return case(nn.Conv2d(3, 8, 3, padding=1), [(randn(1, 3, 2062, 2066),)])


@program
def upsample() -> Case:
    """Nearest, bilinear, bicubic, area and nearest-exact."""

    def forward(x):
        return (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, size=(13, 17), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=(1.5, 2.5), mode="bilinear", align_corners=False),
            F.interpolate(x, size=(9, 4), mode="bicubic"),
            F.interpolate(x, size=(5, 3), mode="area"),
            F.interpolate(x, size=(7, 19), mode="nearest-exact"),
        )

    return case(forward, [(randn(1, 3, 8, 11),) for _ in range(4)])


@program
def upsample_dyn() -> Case:
    """By a factor and to a size, from any size."""

    def forward(x):
        return (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, scale_factor=3, mode="bilinear", align_corners=False),
            F.interpolate(x, size=(6, 6), mode="bilinear"),
        )

    steps = [(randn(2, 3, a, b),) for a, b in ((15, 13), (14, 12), (2, 2), (3, 11))]
    return case(forward, steps, {2: Dim("h", min=2, max=15), 3: Dim("w", min=2, max=13)})


@program
def upsample_bilinear() -> Case:
    def forward(x):
        return (
            F.interpolate(x, size=(13, 17), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=(1.5, 2.5), mode="bilinear", align_corners=False),
            F.interpolate(x, size=(9, 4), mode="bilinear"),
            F.interpolate(x, size=(5, 3), mode="nearest"),
        )

    return case(forward, [(randn(1, 3, 8, 11),) for _ in range(4)])


@program
def padmodes() -> Case:
    """Constant, reflected, replicated and negative."""

    def forward(x):
        return (
            F.pad(x, (2, 1, 0, 3), value=1.5),
            F.pad(x, (2, 1, 1, 2), mode="reflect"),
            F.pad(x, (3, 0, 1, 1), mode="replicate"),
            F.pad(x, (-1, 2)),
        )

    return case(forward, [(randn(1, 3, k, 7),) for k in (11, 9, 4, 5)], {2: Dim("h", min=4, max=11)})


@program
def pad_circ() -> Case:
    def forward(x):
        return F.pad(x, (1, 2, 2, 1), mode="circular"), F.pad(x[0], (2, 2), mode="reflect")

    return case(forward, [(randn(1, 3, 6, 7),) for _ in range(4)])


@program
def pools() -> Case:
    def forward(x):
        return (
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, (2, 3), dilation=2),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, (3, 2), (1, 2)),
            F.adaptive_avg_pool2d(x, 1),
            F.avg_pool2d(x, 2, divisor_override=3),
        )

    return case(forward, [(randn(2, 3, k, 17),) for k in (33, 31, 9, 10, 20)], {2: Dim("h", min=9, max=33)})


@program
def pools2() -> Case:
    """Adaptive, one-dimensional, by ceiling, and with indices."""

    def forward(x):
        return (
            F.adaptive_avg_pool2d(x, (5, 3)),
            F.max_pool1d(x[0], 3, 2),
            F.avg_pool1d(x[0], 4, 3, 1),
            F.max_pool2d(x, 3, 2, ceil_mode=True),
            F.adaptive_max_pool2d(x, 2),
            F.lp_pool2d(x, 2, 2),
            F.max_pool2d(x, 2, return_indices=True),
        )

    return case(forward, [(randn(2, 3, 13, 11),) for _ in range(4)])


@program
def gridsample() -> Case:
    """Sampling by a grid, and pixels shuffled into channels."""

    def forward(x, grid):
        return (
            F.grid_sample(x, grid, align_corners=False),
            F.grid_sample(x, grid, mode="nearest", align_corners=True),
            F.grid_sample(x, grid, padding_mode="border", align_corners=True),
            F.pixel_shuffle(x[:, :4], 2),
            F.pixel_unshuffle(x, 2),
        )

    return case(forward, [(randn(2, 4, 6, 8), torch.rand(2, 5, 7, 2) * 2.6 - 1.3) for _ in range(4)])


@program
def pixel_shuffles() -> Case:
    def forward(x):
        return F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)

    return case(forward, [(randn(2, 4, k, 8),) for k in (14, 10, 2, 6)], {2: 2 * Dim("h", min=1, max=7)})
