"""Small architectures that are exported for XNNPACK, each with calls at two shapes or more.

Where the dims of a case are dynamic, one file serves all shapes; otherwise each shape is exported.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, randn
from torch.export import Dim

from tests.studies.zoo.building import Case, case, module, program
from tests.support.models.transformers import lively


def images(model: nn.Module, *sizes: tuple[int, ...], channels: int = 3) -> Case:
    """Two calls at each size (N, H, W)."""
    shapes = [(n, channels, h, w) for n, h, w in sizes]
    return case(lively(model), [(randn(shape),) for shape in shapes for _ in range(2)])


def batches(model: nn.Module, height: int, width: int, channels: int = 3) -> Case:
    """Batches of up to three images."""
    steps = [(randn(n, channels, height, width),) for n in (3, 2, 1)]
    return case(lively(model), steps, {0: Dim("n", max=3)})


def conv(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1, act: type = nn.ReLU6) -> nn.Module:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), act())


def head(channels: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))


class Inverted(nn.Module):
    """Widen, filter each channel, narrow; weigh the channels if `squeezed`."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, act: type = nn.ReLU6, squeezed: bool = False):
        super().__init__()
        wide = 2 * inputs
        self.wide = nn.Sequential(conv(inputs, wide, act=act), conv(wide, wide, 3, stride, wide, act))
        self.gate = nn.Sequential(nn.Conv2d(wide, 8, 1), nn.ReLU(), nn.Conv2d(8, wide, 1), nn.Hardsigmoid())
        self.narrow = conv(wide, outputs, act=nn.Identity)
        self.squeezed, self.residual = squeezed, stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.wide(x)
        if self.squeezed:
            y = y * self.gate(F.adaptive_avg_pool2d(y, 1))
        return self.narrow(y) + x if self.residual else self.narrow(y)


@program
def mobilenet_v2() -> Case:
    body = (conv(3, 8, 3, 2), Inverted(8, 8), Inverted(8, 12, 2), Inverted(12, 12))
    return images(nn.Sequential(*body, head(12, 7)), (1, 24, 24), (2, 18, 26))


@program
def mobilenet_v3() -> Case:
    first, last = Inverted(8, 8, squeezed=True), Inverted(8, 12, 2, nn.Hardswish, squeezed=True)
    body = (conv(3, 8, 3, 2, act=nn.Hardswish), first, last, conv(12, 16, act=nn.Hardswish))
    return batches(nn.Sequential(*body, head(16, 7)), 17, 22)


class Basic(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, 3, stride, act=nn.ReLU)
        self.second = conv(outputs, outputs, 3, act=nn.Identity)
        self.skip = conv(inputs, outputs, 1, stride, act=nn.Identity)

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.skip(x))


@program
def resnet() -> Case:
    stem = nn.Sequential(conv(3, 8, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1))
    return images(nn.Sequential(stem, Basic(8, 8, 1), Basic(8, 16, 2), head(16, 5)), (1, 32, 32), (2, 25, 37))


@program
def resnet_dyn() -> Case:
    """Batches of any size."""
    stem = nn.Sequential(conv(3, 8, 3, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1))
    return batches(nn.Sequential(stem, Basic(8, 12, 2), head(12, 5)), 16, 20)


@program
def dscnn() -> Case:
    """Keyword spotting: separable convolutions over a spectrogram of one channel."""
    blocks = [nn.Sequential(conv(8, 8, 3, groups=8, act=nn.ReLU), conv(8, 8, act=nn.ReLU)) for _ in range(2)]
    first = nn.Sequential(nn.Conv2d(1, 8, (10, 4), 2, (5, 1)), nn.ReLU())
    return batches(nn.Sequential(first, *blocks, nn.AvgPool2d(2), head(8, 6)), 25, 10, channels=1)


@program
def segmenter() -> Case:
    """Down, up by a transposed convolution, joined with what was before, resized."""

    def forward(self, x):
        fine = self.first(x)
        joined = torch.cat([F.relu(self.up(self.down(fine))), fine], 1)
        return F.interpolate(self.last(joined), scale_factor=2.0, mode="bilinear", align_corners=False)

    parts = {"first": conv(3, 6, 3, 2), "down": conv(6, 12, 3, 2), "last": nn.Conv2d(12, 4, 1)}
    up = nn.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1)
    return batches(module(forward, **parts, up=up), 16, 24)


@program
def super_resolution() -> Case:
    first = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.Tanh(), nn.Conv2d(8, 8, 3, padding=1), nn.PReLU(8))
    model = nn.Sequential(first, nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2))
    return batches(model, 7, 9, channels=1)


@program
def convnext() -> Case:
    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + self.narrow(F.gelu(self.wide(self.norm(y)))).permute(0, 3, 1, 2)

    parts = {"stem": nn.Conv2d(3, 8, 4, 4), "depthwise": nn.Conv2d(8, 8, 7, padding=3, groups=8)}
    layers = {"norm": nn.LayerNorm(8), "wide": nn.Linear(8, 32), "narrow": nn.Linear(32, 8)}
    return batches(module(forward, **parts, **layers), 24, 20)


@program
def yolo_neck() -> Case:
    """Pools of several sizes joined, two scales, anchors decoded."""

    def forward(self, x):
        x = self.first(x)
        pooled = torch.cat([x, F.max_pool2d(x, 5, 1, 2), F.max_pool2d(x, 9, 1, 4)], 1)
        y = self.head(self.join(pooled))
        boxes, scores = y[:, :4], y[:, 4:]
        return torch.exp(boxes.clamp(-3, 3)), torch.sigmoid(scores)

    parts = {"first": conv(3, 8, 3, 2, act=nn.SiLU), "join": conv(24, 12, act=nn.SiLU), "head": nn.Conv2d(12, 7, 1)}
    return batches(module(forward, **parts), 26, 18)


# -- attention ---------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, other=None, mask=None):
        other = x if other is None else other
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (layer(other).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal and mask is None)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int = 32, cross: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.own, self.norms = Attention(width, causal=causal), nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.cross = Attention(width) if cross else None
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, other=None, mask=None):
        x = x + self.own(self.norms[0](x), mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), other)
        return x + self.narrow(F.gelu(self.wide(self.norms[2](x))))


@program
def vit() -> Case:
    def forward(self, x):
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1)
        return self.out(self.block(y + self.position[:, : y.shape[1]])[:, 0])

    parts = {"patch": nn.Conv2d(3, 32, 4, 4), "block": Block(), "out": nn.Linear(32, 5)}
    learned = {"token": nn.Parameter(randn(1, 1, 32)), "position": nn.Parameter(randn(1, 33, 32))}
    return images(module(forward, **parts, **learned), (1, 16, 16), (2, 16, 24))


def texts(model: nn.Module) -> Case:
    """Token ids (1, T) of any length."""
    return case(lively(model), [(torch.randint(0, 50, (1, t)),) for t in (16, 9, 2, 13)], {1: Dim("t", min=2, max=16)})


@program
def bert() -> Case:
    """Return a mask beside the tokens."""

    def forward(self, ids, keep):
        x = self.norm(self.embed(ids) + self.position[:, : ids.shape[1]])
        mask = (1.0 - keep[:, None, None, :].float()) * -1e4
        x = self.block(x, mask=mask)
        return x, torch.tanh(self.pool(x[:, 0]))

    parts = {"embed": nn.Embedding(50, 32), "norm": nn.LayerNorm(32), "block": Block(), "pool": nn.Linear(32, 32)}
    model = lively(module(forward, **parts, position=nn.Parameter(randn(1, 16, 32))))
    steps = [(torch.randint(0, 50, (2, t)), (torch.arange(t) < t - 1).long().repeat(2, 1)) for t in (16, 9)]
    return case(model, steps)


@program
def bert_dyn() -> Case:
    def forward(self, ids):
        return self.block(self.embed(ids) + self.position[:, : ids.shape[1]])

    parts = {"embed": nn.Embedding(50, 32), "position": nn.Parameter(randn(1, 16, 32)), "block": Block()}
    return texts(module(forward, **parts))


@program
def decoder() -> Case:
    """Causal attention and logits."""

    def forward(self, ids):
        return self.out(self.block(self.embed(ids)))

    return texts(module(forward, embed=nn.Embedding(50, 32), block=Block(causal=True), out=nn.Linear(32, 50)))


@program
def whisper() -> Case:
    """Return an encoder of sound and a decoder of text that looks at it."""

    def forward(self, sound, ids):
        y = F.gelu(self.second(F.gelu(self.first(sound)))).transpose(1, 2)
        y = self.encoder(y)
        return self.out(self.decoder(self.embed(ids), y))

    convs = {"first": nn.Conv1d(10, 32, 3, padding=1), "second": nn.Conv1d(32, 32, 3, 2, 1)}
    blocks = {"encoder": Block(), "decoder": Block(cross=True, causal=True)}
    model = lively(module(forward, **convs, **blocks, embed=nn.Embedding(50, 32), out=nn.Linear(32, 50)))
    return case(model, [(randn(1, 10, n), torch.randint(0, 50, (1, t))) for n, t in ((24, 6), (30, 1))])


class Rms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Llama(nn.Module):
    """One layer with rotary positions, a gate and a cache of 16 tokens."""

    def __init__(self, width: int = 32, heads: int = 2, most: int = 16) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.embed, self.out = nn.Embedding(50, width), nn.Linear(width, 50, bias=False)
        self.norms = nn.ModuleList(Rms(width) for _ in range(3))
        self.qkv, self.after = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 64, bias=False) for _ in range(2))
        self.down = nn.Linear(64, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, heads, most, self.size))
        self.register_buffer("values", torch.zeros(1, heads, most, self.size))
        self.register_buffer("mask", torch.full((most, most), -1e9).triu(1))
        angles = torch.arange(most)[:, None] * 10000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def turned(self, x, at):
        low, high = x.chunk(2, -1)
        return x * self.cos[at] + torch.cat([-high, low], -1) * self.sin[at]

    def forward(self, ids, at):
        x = self.embed(ids)
        q, k, v = (
            y.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
            for y in self.qkv(self.norms[0](x)).chunk(3, -1)
        )  # fmt: skip
        q, k = self.turned(q, at), self.turned(k, at)
        self.keys[:, :, at] = k
        self.values[:, :, at] = v
        y = F.scaled_dot_product_attention(q, self.keys, self.values, self.mask[at])
        x = x + self.after(y.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.out(self.norms[2](x))


@program
def llama() -> Case:
    """Two parts of a prompt, then tokens one by one."""
    steps, position = [], 0
    for count in (7, 5, 1, 1, 1):
        steps.append((torch.randint(0, 50, (1, count)), torch.arange(position, position + count)))
        position += count
    t = Dim("t", max=7)
    return case(Llama(), steps, {1: t}, {0: t})  # `lively` would change the masks and rotations too


# -- sequences and layers ----------------------------------------------------------------------------------------------


@program
def lstm() -> Case:
    def forward(self, x):
        y, (h, _) = self.layer(x)
        return self.out(y), h

    model = module(forward, layer=nn.LSTM(8, 12, batch_first=True), out=nn.Linear(12, 4))
    return case(model, [(randn(n, t, 8),) for n, t in ((1, 5), (2, 3))])


@program
def gru() -> Case:
    def forward(self, x):
        y, h = self.layer(x)
        return self.out(y), h

    model = module(forward, layer=nn.GRU(8, 12, batch_first=True), out=nn.Linear(12, 4))
    return case(model, [(randn(n, t, 8),) for n, t in ((1, 5), (2, 3))])


@program
def speech() -> Case:
    """Convolutions over time with growing steps between taps."""
    layers = [nn.Conv1d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4)]
    model = nn.Sequential(layers[0], nn.BatchNorm1d(8), nn.ReLU(), layers[1], nn.GELU(), layers[2], nn.LogSoftmax(1))
    return case(lively(model), [(randn(n, 8, 13),) for n in (3, 2, 1)], {0: Dim("n", max=3)})


@program
def mlp() -> Case:
    model = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 6))
    return case(lively(model), [(randn(n, 32),) for n in (9, 5, 1)], {0: Dim("n", max=9)})


@program
def gated() -> Case:
    """SwiGLU after RMSNorm, on rows of any number of tokens."""

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    layers = {"gate": nn.Linear(32, 64, bias=False), "up": nn.Linear(32, 64, bias=False)}
    model = module(forward, norm=Rms(32), **layers, down=nn.Linear(64, 32, bias=False))
    return case(lively(model), [(randn(1, t, 32) * 3,) for t in (8, 6, 1)], {1: Dim("t", max=8)})


@program
def mixer() -> Case:
    def forward(self, x):
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))

    parts = {"first": nn.LayerNorm(32), "second": nn.LayerNorm(32)}
    tokens = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
    channels = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32))
    model = module(forward, **parts, tokens=tokens, channels=channels)
    return case(lively(model), [(randn(n, 12, 32),) for n in (3, 2, 1)], {0: Dim("n", max=3)})


@program
def autoencoder() -> Case:
    down = nn.Sequential(nn.Conv2d(1, 6, 3, 2, 1), nn.ELU(), nn.Conv2d(6, 8, 3, 2, 1), nn.LeakyReLU(0.1))
    up = nn.Sequential(nn.ConvTranspose2d(8, 6, 2, 2), nn.ReLU(), nn.ConvTranspose2d(6, 1, 2, 2), nn.Sigmoid())
    return batches(nn.Sequential(down, up), 12, 20, channels=1)


@program
def arithmetic() -> Case:
    """Element by element, with broadcasts and scalars."""

    def forward(x, y):
        a = torch.abs(x) + 0.5
        lower, upper = torch.minimum(x, y), torch.maximum(x, y)
        return (upper - lower) / a, torch.sqrt(a) * torch.log(a), torch.exp(-a) + torch.cos(x) * torch.sin(y)

    return case(forward, [(randn(2, n, 6), randn(n, 1)) for n in (5, 3)])
