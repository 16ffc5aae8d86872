"""Attention and normalization as modules have them."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program


@program
def gqa_sliding() -> Case:
    """Grouped queries that see the last five tokens."""

    def forward(self, x):
        B, S, _ = x.shape
        q = self.q(x).view(B, S, 6, 8).transpose(1, 2)
        k = self.k(x).view(B, S, 2, 8).transpose(1, 2)
        v = self.v(x).view(B, S, 2, 8).transpose(1, 2)
        i = torch.arange(S)
        window = (i[None] <= i[:, None]) & (i[None] > i[:, None] - 5)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=window, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(B, S, 48))

    model = module(forward, q=nn.Linear(24, 48), k=nn.Linear(24, 16), v=nn.Linear(24, 16), o=nn.Linear(48, 24))
    return case(model, [(randn(2, k, 24),) for k in (31, 29, 1, 3, 17)], {1: Dim("s", max=31)})


@program
def cross_attn2() -> Case:
    """Two lengths, three widths, and the weights as a result."""

    def forward(self, x, k, v):
        return self.attention(x, k, v, need_weights=True)

    model = module(forward, attention=nn.MultiheadAttention(15, 3, batch_first=True, kdim=10, vdim=6))
    lengths = ((19, 23), (17, 21), (2, 23), (19, 2), (5, 3))
    steps = [(randn(2, a, 15), randn(2, b, 10), randn(2, b, 6)) for a, b in lengths]
    s, t = Dim("s", max=19), Dim("t", max=23)
    return case(model, steps, {1: s}, {1: t}, {1: t})


@program
def sdpa_causal_boolpad() -> Case:
    """A mask of booleans, and a causal one."""

    def forward(x, mask):
        padded = F.scaled_dot_product_attention(x, x * 0.5, x + 1, attn_mask=mask[:, None, None, :])
        return padded, F.scaled_dot_product_attention(x, x, x, is_causal=True)

    def step(k):
        mask = torch.rand(2, k) > 0.4
        mask[:, 0] = True
        return randn(2, 3, k, 8), mask

    s = Dim("s", min=2, max=19)
    return case(forward, [step(k) for k in (19, 17, 2, 6)], {2: s}, {1: s})


@program
def transformer_encoder() -> Case:
    """torch's own layers, with a dynamic batch and length."""
    layer = nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, batch_first=True, norm_first=True)
    steps = [(randn(b, k, 24),) for b, k in ((3, 17), (2, 15), (1, 2), (3, 5))]
    model = module(lambda self, x: self.layers(x), layers=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    return case(model, steps, {0: Dim("b", max=3), 1: Dim("s", min=2, max=17)})


@program
def norms() -> Case:
    """Group, instance, layer and two forms of RMS norm."""

    def forward(self, x):
        p = x.permute(0, 2, 3, 1)[..., :5, :]
        rms = p * torch.rsqrt(p.pow(2).mean(-1, keepdim=True) + 1e-3) * self.weight
        return self.group(x), self.instance(x * 2), self.layer(p), rms, self.rms(p)

    parts = {
        "group": nn.GroupNorm(3, 12, eps=0.01),
        "instance": nn.InstanceNorm2d(12, affine=True),
        "layer": nn.LayerNorm([5, 12], eps=0.1),
        "rms": nn.RMSNorm(12, eps=0.05),
        "weight": nn.Parameter(randn(12)),
    }
    return case(
        module(forward, **parts), [(randn(2, 12, k, 9) * 3 + 1,) for k in (13, 11, 1, 2, 7)], {2: Dim("h", max=13)}
    )


@program
def emb_pad() -> Case:
    """Embeddings with positions, a padding token and one-hot counts."""

    def forward(self, x):
        return self.table(x) + self.positions[: x.shape[1]], x == 3, F.one_hot(x, 29).sum(1)

    model = module(forward, table=nn.Embedding(29, 7, padding_idx=3), positions=nn.Parameter(randn(40, 7)))
    return case(model, [(torch.randint(0, 29, (2, k)),) for k in (37, 35, 1, 2, 11)], {1: Dim("t", max=37)})


@program
def embbag() -> Case:
    return case(nn.EmbeddingBag(23, 9, mode="mean"), [(torch.randint(0, 23, (5, 6)),) for _ in range(4)])


@program
def embedding() -> Case:
    return case(nn.Embedding(5, 3), [(torch.randint(0, 5, (3,)),) for _ in range(4)])


@program
def einsums() -> Case:
    def forward(x, y):
        return (
            torch.einsum("bnd,bmd->bnm", x, x),
            torch.einsum("bnd,dk->bkn", x, y),
            torch.einsum("bnd->d", x),
            torch.einsum("bnd,bnd->bn", x, x * 2),
        )

    steps = [(randn(a, c, 6), randn(6, 4)) for a, c in ((5, 13), (4, 11), (1, 1), (2, 7), (3, 2))]
    return case(forward, steps, {0: Dim("b", max=5), 1: Dim("n", max=13)}, None)


@program
def matmuls() -> Case:
    """Batched, transposed, with a vector and broadcast; a dynamic batch and inner size."""

    def forward(x, y):
        return (
            x @ y,
            x.transpose(1, 2) @ x,
            torch.bmm(x, y).sum(),
            x[0] @ y[0, :, 0],
            torch.baddbmm(torch.ones(1, 1, 1), x, y, alpha=0.5, beta=2.0),
            torch.matmul(x[:, None], y[None]),
        )

    steps = [(randn(a, 7, c), randn(a, c, 5)) for a, c in ((6, 25), (5, 23), (1, 1), (2, 7), (1, 25))]
    b, k = Dim("b", max=6), Dim("k", max=25)
    return case(forward, steps, {0: b, 2: k}, {0: b, 1: k})


@program
def addmm() -> Case:
    """Scaled sums of products, outer products and distances."""

    def forward(x, y, z):
        return (
            torch.addmm(z, x, y, alpha=0.3, beta=0.7),
            torch.mv(x, y[:, 0]),
            torch.outer(x[:, 0], y[0]),
            torch.dot(x[0], y[:, 1]),
            torch.addcmul(z, z, z, value=0.1),
            torch.kron(x[:2, :2], y[:2, :2]),
            torch.cdist(x, x),
        )

    return case(forward, [(randn(5, 7), randn(7, 3), randn(3)) for _ in range(4)])
