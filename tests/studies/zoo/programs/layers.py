"""Layers of `torch.nn` that no other family has, one each, with any batch up to five."""

import torch
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program

BATCHES = (5, 3, 1, 2)


def layer(model: nn.Module, *shape: int) -> Case:
    return case(model, [(randn(n, *shape),) for n in BATCHES], {0: Dim("b", max=5)})


def of_two(function, *shapes: tuple[int, ...], **parts) -> Case:
    b = Dim("b", max=5)
    steps = [tuple(randn(n, *shape) for shape in shapes) for n in BATCHES]
    return case(module(function, **parts), steps, {0: b}, {0: b})


# ---------------------------------------------------------------- activations


@program
def prelu() -> Case:
    """A slope per channel."""
    return layer(nn.PReLU(3, init=0.3), 3, 7)


@program
def glu() -> Case:
    return layer(nn.GLU(dim=1), 6, 7)


@program
def swiglu() -> Case:
    """The gated feed-forward of language models."""

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    linears = {"gate": nn.Linear(9, 20, bias=False), "up": nn.Linear(9, 20, bias=False), "down": nn.Linear(20, 9)}
    return layer(module(forward, **linears), 4, 9)


@program
def thresholds() -> Case:
    """Threshold, hard tanh, hard shrink, soft shrink."""
    layers = nn.Threshold(0.1, -2.0), nn.Hardtanh(-0.4, 0.8), nn.Hardshrink(0.3), nn.Softshrink(0.2)
    return layer(module(lambda self, x: tuple(f(x) for f in self.layers), layers=nn.ModuleList(layers)), 4, 7)


@program
def softmaxes() -> Case:
    """Over channels, of the smallest, and as a logarithm."""
    layers = nn.Softmax2d(), nn.Softmin(-1), nn.LogSoftmax(1)
    return layer(module(lambda self, x: tuple(f(x) for f in self.layers), layers=nn.ModuleList(layers)), 4, 3, 5)


@program
def rrelu() -> Case:
    """Random slopes, which are their mean when evaluated."""
    return layer(nn.RReLU(), 4, 7)


# ---------------------------------------------------------------- linear


@program
def bilinear() -> Case:
    return of_two(lambda self, x, y: self.layer(x, y), (4,), (5,), layer=nn.Bilinear(4, 5, 3))


@program
def mlp_mixer() -> Case:
    """Linears over patches, then over channels."""

    def forward(self, x):
        x = x + self.patches(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))

    parts = {
        "first": nn.LayerNorm(6),
        "second": nn.LayerNorm(6),
        "patches": nn.Sequential(nn.Linear(9, 14), nn.GELU(), nn.Linear(14, 9)),
        "channels": nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6)),
    }
    return layer(module(forward, **parts), 9, 6)


@program
def weight_norm() -> Case:
    """A weight as direction and length."""
    return layer(nn.utils.parametrizations.weight_norm(nn.Linear(7, 5)), 7)


@program
def spectral_norm() -> Case:
    return layer(nn.utils.parametrizations.spectral_norm(nn.Linear(7, 5)), 7)


@program
def lora() -> Case:
    """A linear layer and a correction of low rank."""
    parts = {"base": nn.Linear(12, 10), "down": nn.Linear(12, 2, bias=False), "up": nn.Linear(2, 10, bias=False)}
    return layer(module(lambda self, x: self.base(x) + 2 * self.up(self.down(x)), **parts), 4, 12)


@program
def autoencoder() -> Case:
    encoder = nn.Sequential(nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 3))
    decoder = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 24), nn.Sigmoid())
    return layer(nn.Sequential(encoder, decoder), 24)


@program
def highway() -> Case:
    """A gate between a layer and its input."""

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.layer(x)) + (1 - gate) * x

    return layer(module(forward, gate=nn.Linear(8, 8), layer=nn.Linear(8, 8)), 8)


@program
def film() -> Case:
    """Channels scaled and moved by a condition."""

    def forward(self, x, y):
        scale, shift = self.of(y).chunk(2, -1)
        return x * (1 + scale[..., None]) + shift[..., None]

    return of_two(forward, (6, 9), (4,), of=nn.Linear(4, 12))


@program
def fourier_features() -> Case:
    """Sines and cosines of random projections."""

    def forward(self, x):
        angles = 6.2831855 * x @ self.b
        return self.last(torch.cat([angles.sin(), angles.cos()], -1))

    return layer(module(forward, b=randn(3, 8), last=nn.Linear(16, 2)), 3)


# ---------------------------------------------------------------- convolution


@program
def conv_same() -> Case:
    """Padding chosen by the layer, unequal on both sides."""
    return layer(nn.Conv2d(3, 4, (4, 3), padding="same"), 3, 9, 8)


@program
def conv_reflect() -> Case:
    return layer(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), 3, 9, 8)


@program
def conv_replicate() -> Case:
    return layer(nn.Conv1d(3, 4, 5, padding=2, padding_mode="replicate"), 3, 9)


@program
def conv_circular() -> Case:
    return layer(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), 3, 6, 8)


@program
def conv_causal() -> Case:
    """A stack that sees only the past, dilated twice as far each time."""
    blocks = [
        nn.Sequential(nn.ConstantPad1d((2 * d, 0), 0.0), nn.Conv1d(5, 5, 3, dilation=d), nn.ReLU()) for d in (1, 2, 4)
    ]
    return layer(nn.Sequential(*blocks), 5, 21)


@program
def conv_transpose3d() -> Case:
    return layer(nn.ConvTranspose3d(2, 3, 3, stride=2, padding=1), 2, 3, 4, 5)


@program
def separable() -> Case:
    """Depthwise, then pointwise."""
    return layer(nn.Sequential(nn.Conv2d(6, 12, 3, padding=1, groups=6), nn.Conv2d(12, 5, 1)), 6, 9, 7)


@program
def patches() -> Case:
    """An image as a row of patches."""

    def forward(self, x):
        return self.embed(x).flatten(2).transpose(1, 2) + self.positions

    return layer(module(forward, embed=nn.Conv2d(3, 8, 4, stride=4), positions=nn.Parameter(randn(6, 8))), 3, 8, 12)


@program
def unfold() -> Case:
    return layer(nn.Unfold(3, padding=1, stride=2), 3, 9, 8)


@program
def fold() -> Case:
    return layer(nn.Fold((6, 5), 3, padding=1), 27, 30)


# ---------------------------------------------------------------- norms, pooling, shape


@program
def local_response_norm() -> Case:
    return layer(nn.LocalResponseNorm(3), 6, 5, 4)


@program
def batch_norms() -> Case:
    """With statistics of their own, one with neither scale nor shift."""

    def lively(norm):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        return norm

    return layer(nn.Sequential(lively(nn.BatchNorm1d(6)), nn.ReLU(), lively(nn.BatchNorm1d(6, affine=False))), 6, 7)


@program
def instance_norm1d() -> Case:
    return layer(nn.InstanceNorm1d(4), 4, 9)


@program
def group_norm_one() -> Case:
    """One group, and as many groups as channels."""
    return layer(nn.Sequential(nn.GroupNorm(1, 6), nn.GroupNorm(6, 6, affine=False)), 6, 5, 4)


@program
def adaptive_pools() -> Case:
    layers = nn.AdaptiveAvgPool1d(4), nn.AdaptiveMaxPool1d(3)
    return layer(module(lambda self, x: tuple(f(x) for f in self.layers), layers=nn.ModuleList(layers)), 3, 12)


@program
def max_pool3d() -> Case:
    return layer(nn.MaxPool3d(2), 2, 4, 6, 5)


@program
def avg_pool3d() -> Case:
    return layer(nn.AvgPool3d(2), 2, 4, 6, 5)


@program
def max_unpool() -> Case:
    """What a pool took away, put back where it was."""

    def forward(self, x):
        pooled, places = nn.functional.max_pool2d(x, 2, return_indices=True)
        return nn.functional.max_unpool2d(pooled, places, 2)

    return layer(module(forward), 3, 6, 8)


@program
def paddings() -> Case:
    layers = (
        nn.ZeroPad2d((1, 2, 0, 3)),
        nn.ConstantPad2d(1, 2.5),
        nn.ReflectionPad2d((1, 2, 1, 0)),
        nn.ReplicationPad2d(2),
    )
    return layer(module(lambda self, x: tuple(f(x) for f in self.layers), layers=nn.ModuleList(layers)), 3, 5, 6)


@program
def upsamples() -> Case:
    return layer(nn.Sequential(nn.Upsample(scale_factor=2), nn.Upsample(size=(9, 7), mode="bilinear")), 3, 4, 5)


@program
def unflatten() -> Case:
    return layer(nn.Sequential(nn.Flatten(), nn.Linear(20, 12), nn.Unflatten(1, (3, 4))), 4, 5)


# ---------------------------------------------------------------- recurrent and attention


@program
def lstm_cell() -> Case:
    def forward(self, x, y):
        return self.cell(x, (y, y * 0.5))

    return of_two(forward, (5,), (7,), cell=nn.LSTMCell(5, 7))


@program
def transformer_decoder() -> Case:
    """A layer that attends to itself and to a memory."""
    model = nn.TransformerDecoderLayer(12, 3, 20, dropout=0.0, batch_first=True)
    return of_two(lambda self, x, y: self.layer(x, y), (7, 12), (5, 12), layer=model)


@program
def attention_pooling() -> Case:
    """A weighted mean over time, weights learnt."""

    def forward(self, x):
        weights = torch.softmax(self.score(x), 1)
        return (weights * x).sum(1), weights.squeeze(-1)

    return layer(module(forward, score=nn.Linear(6, 1)), 9, 6)


@program
def linear_attention() -> Case:
    """Attention without a softmax, as a running sum."""

    def forward(self, x):
        q, k, v = (nn.functional.elu(t) + 1 for t in self.qkv(x).chunk(3, -1))
        sums = torch.cumsum(k[..., :, None] * v[..., None, :], 1)  # (B, T, D, D)
        total = torch.cumsum(k, 1)
        return (q[..., None, :] @ sums).squeeze(-2) / (q * total).sum(-1, keepdim=True)

    return layer(module(forward, qkv=nn.Linear(6, 18)), 11, 6)


@program
def rotary() -> Case:
    """Positions as rotations, written out with complex numbers left out."""

    def forward(self, x):
        first, second = x.chunk(2, -1)
        angles = torch.arange(x.shape[1])[:, None] * self.frequencies
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
        )

    return layer(module(forward, frequencies=1 / 10 ** torch.linspace(0, 3, 4)), 9, 8)


# ---------------------------------------------------------------- distances


@program
def cosine_similarity() -> Case:
    return of_two(lambda self, x, y: self.layer(x, y), (6,), (6,), layer=nn.CosineSimilarity())


@program
def pairwise_distance() -> Case:
    return of_two(lambda self, x, y: self.layer(x, y), (6,), (6,), layer=nn.PairwiseDistance())


@program
def contrastive() -> Case:
    """Two towers, normalized, and their similarities."""

    def forward(self, x, y):
        a, b = (nn.functional.normalize(f(t), dim=-1) for f, t in ((self.left, x), (self.right, y)))
        return a @ b.t() * self.temperature.exp()

    parts = {"left": nn.Linear(7, 5), "right": nn.Linear(4, 5), "temperature": nn.Parameter(torch.tensor(1.2))}
    return of_two(forward, (7,), (4,), **parts)


@program
def kmeans_assign() -> Case:
    """The nearest of eleven centres."""

    def forward(self, x):
        distances = ((x[:, None] - self.centres[None]) ** 2).sum(-1)
        return distances.argmin(1), distances.amin(1)

    return layer(module(forward, centres=randn(11, 4)), 4)


@program
def vector_quantizer() -> Case:
    """The nearest code, looked up."""

    def forward(self, x):
        nearest = torch.cdist(x, self.codes.weight[None].expand(x.shape[0], -1, -1)).argmin(-1)
        return self.codes(nearest), nearest

    return layer(module(forward, codes=nn.Embedding(13, 4)), 6, 4)
