"""Convolutional networks written out, tiny, with random weights: a detector, a U-Net, and classics by their blocks."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, randn
from torch.export import Dim

from tests.support.models.transformers import lively

from ..building import Case, case, module, program


def conv(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1, act: type = nn.SiLU) -> nn.Module:
    """Convolution, batch norm, activation."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), act())


# ---------------------------------------------------------------- a detector


class C2f(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first = conv(inputs, outputs)
        self.blocks = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(2))
        self.last = conv(2 * outputs, outputs)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]) + parts[-1])
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """Two scales, boxes as distributions over 16 distances."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(conv(3, 8, 3, 2), conv(8, 16, 3, 2), C2f(16, 16))
        self.deep = nn.Sequential(conv(16, 32, 3, 2), C2f(32, 32))
        self.squeeze, self.join, self.up = conv(32, 16), conv(64, 32), C2f(48, 16)
        self.heads = nn.ModuleList(nn.Conv2d(n, 64 + classes, 1) for n in (16, 32))
        self.register_buffer("distances", torch.arange(16.0))

    def forward(self, x):
        fine = self.stem(x)
        pooled = [self.squeeze(self.deep(fine))]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        coarse = self.join(torch.cat(pooled, 1))
        fine = self.up(torch.cat([F.interpolate(coarse, scale_factor=2.0, mode="nearest"), fine], 1))
        scales = zip((fine, coarse), self.heads, (4, 8), strict=True)
        return torch.cat([self.boxes(head(features), stride) for features, head, stride in scales], 2)

    def boxes(self, y, stride):
        B, _, H, W = y.shape
        box, scores = y.flatten(2).split([64, self.classes], 1)
        box = box.view(B, 4, 16, H * W).softmax(2).mul(self.distances.view(1, 1, 16, 1)).sum(2)
        rows, columns = torch.arange(H).float() + 0.5, torch.arange(W).float() + 0.5
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).view(-1, 2).t()[None].flip(1)
        before, after = box.chunk(2, 1)
        low, high = grid - before, grid + after
        return torch.cat([(low + high) / 2 * stride, (high - low) * stride, scores.sigmoid()], 1)


@program(tolerance=5e-5)
def yolo() -> Case:
    return case(lively(Yolo()), [(randn(1, 3, 64, 64),) for _ in range(4)])


@program(tolerance=5e-5)
def yolo_dyn() -> Case:
    """Images of any size."""
    steps = [(randn(1, 3, a, b),) for a, b in ((96, 96), (64, 48), (16, 16), (96, 24))]
    return case(lively(Yolo()), steps, {2: 8 * Dim("h", min=2, max=12), 3: 8 * Dim("w", min=2, max=12)})


# ---------------------------------------------------------------- a U-Net


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.skip = nn.Linear(time, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """A step of diffusion: an image, a time, a text of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.time = nn.Linear(16, 24)
        self.down, self.middle, self.up = Residual(8, 8, 24), Residual(16, 16, 24), Residual(24, 8, 24)
        self.smaller = nn.Conv2d(8, 16, 3, 2, 1)
        self.qkv, self.text, self.query = nn.Linear(16, 48), nn.Linear(12, 32), nn.Linear(16, 16)

    def forward(self, x, t, text):
        angles = t[:, None].float() * torch.exp(-torch.arange(8) * (9.2 / 8))[None]
        time = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        fine = self.down(self.first(x), time)
        coarse = self.middle(self.smaller(fine), time)
        B, C, H, W = coarse.shape
        z = coarse.flatten(2).transpose(1, 2)
        z = z + attend(*self.qkv(z).chunk(3, -1))
        z = z + attend(self.query(z), *self.text(text).chunk(2, -1))
        bigger = F.interpolate(z.transpose(1, 2).reshape(B, C, H, W), scale_factor=2.0, mode="nearest")
        return self.last(F.silu(self.up(torch.cat([bigger, fine], 1), time)))


def attend(q, k, v):
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]


@program(tolerance=5e-5)
def unet() -> Case:
    steps = [(randn(2, 4, 16, 12), torch.tensor([k, 500]), randn(2, 7, 12)) for k in (999, 3, 0, 50)]
    return case(lively(UNet()), steps)


@program(tolerance=5e-5)
def unet_dyn() -> Case:
    """Images of any size and texts of any length."""
    sizes = ((24, 24, 9), (16, 12, 7), (4, 4, 2), (24, 6, 5))
    steps = [(randn(1, 4, a, b), torch.tensor([7]), randn(1, c, 12)) for a, b, c in sizes]
    image = {2: 2 * Dim("h", min=2, max=12), 3: 2 * Dim("w", min=2, max=12)}
    return case(lively(UNet()), steps, image, None, {1: Dim("t", min=2, max=9)})


# ---------------------------------------------------------------- classics by their blocks


def any_size(body: nn.Module, channels: int) -> Case:
    """Images of any multiple of 8 up to 64 x 64."""
    model = nn.Sequential(
        conv(3, 8, 3, 2, act=nn.ReLU), body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)
    )
    steps = [(randn(1, 3, a, b),) for a, b in ((64, 64), (48, 32), (8, 8), (64, 16))]
    return case(lively(model), steps, {2: 8 * Dim("h", min=1, max=8), 3: 8 * Dim("w", min=1, max=8)})


def inverted(inputs: int, outputs: int, act: type = nn.ReLU6) -> nn.Module:
    wide = inputs * 3
    return nn.Sequential(
        conv(inputs, wide, act=act), conv(wide, wide, 5, 2, wide, act), conv(wide, outputs, act=nn.Identity)
    )


@program(tolerance=5e-5)
def mnasnet() -> Case:
    """Inverted residuals with depthwise kernels of 5."""
    return any_size(nn.Sequential(inverted(8, 12), inverted(12, 16)), 16)


@program(tolerance=5e-5)
def mobilenet_v3() -> Case:
    """Channels weighed by their own mean, hard swish."""

    def weigh(self, x):
        y = self.widen(x)
        return self.narrow(y * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(y, 1))))))

    parts = {"widen": inverted(8, 24, nn.Hardswish), "narrow": conv(24, 16, act=nn.Hardswish)}
    return any_size(module(weigh, **parts, down=nn.Conv2d(24, 8, 1), up=nn.Conv2d(8, 24, 1)), 16)


@program(tolerance=5e-5)
def shufflenet() -> Case:
    """Channels shuffled between halves."""

    def shuffled(self, x):
        kept, changed = x.chunk(2, 1)
        B, C, H, W = x.shape
        joined = torch.cat([kept, self.branch(changed)], 1)
        return joined.view(B, 2, C // 2, H, W).transpose(1, 2).reshape(B, C, H, W)

    def block() -> nn.Module:
        return module(shuffled, branch=nn.Sequential(conv(4, 4, act=nn.ReLU), conv(4, 4, 3, groups=4, act=nn.ReLU)))

    return any_size(nn.Sequential(block(), block(), conv(8, 16, 3, 2, act=nn.ReLU)), 16)


@program(tolerance=5e-5)
def squeezenet() -> Case:
    """Squeezed, then widened by two sizes of kernel."""

    def fire(self, x):
        y = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(y)), F.relu(self.three(y))], 1)

    parts = {"squeeze": nn.Conv2d(8, 4, 1), "one": nn.Conv2d(4, 8, 1), "three": nn.Conv2d(4, 8, 3, padding=1)}
    return any_size(nn.Sequential(module(fire, **parts), nn.MaxPool2d(2)), 16)


@program(tolerance=5e-5)
def googlenet() -> Case:
    """Four branches side by side."""

    def inception(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)

    branches = nn.ModuleList([
        conv(8, 4, act=nn.ReLU),
        nn.Sequential(conv(8, 4, act=nn.ReLU), conv(4, 6, 3, act=nn.ReLU)),
        nn.Sequential(conv(8, 2, act=nn.ReLU), conv(2, 4, 5, act=nn.ReLU)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(8, 2, act=nn.ReLU)),
    ])  # fmt: skip
    return any_size(module(inception, branches=branches), 16)


@program(tolerance=5e-5)
def densenet() -> Case:
    """Every layer sees all before it."""

    def dense(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, layer(F.relu(norm(x)))], 1)
        return self.transition(x)

    widths = (8, 12, 16)
    parts = {
        "norms": nn.ModuleList(nn.BatchNorm2d(n) for n in widths),
        "layers": nn.ModuleList(nn.Conv2d(n, 4, 3, padding=1, bias=False) for n in widths),
        "transition": nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2)),
    }
    return any_size(module(dense, **parts), 10)
