"""Layers with a recurrent state instead of a KV cache: LFM2's gated convolution, and Qwen3.5's linear attention.

The state of LFM2's convolution holds the latest tokens of previous calls.

The gated delta rule of Qwen3.5 is computed for all tokens of a call at once, by matrix products and without a loop. A
head keeps a matrix S. A token with key k, value v, log decay g and strength b changes S to exp(g) S + k d', where
d = b (v - (exp(g) S)' k) is the value that S lacks to map k to v. The token's query reads S' q. The d of all tokens
solve (I + A) d = r with A strictly lower triangular: A holds the influence of each token on the later ones.
"""

from __future__ import annotations

import math

import torch
from executorch.examples.models.llama.norm import RMSNorm
from torch import Tensor, bmm, nn
from torch.nn import functional

from webpte.checkpoints.architecture import Architecture

from .decoder import Decoder, DecoderAttention, DecoderBlock, Position
from .experts import FedBlock


class CausalConv(nn.Module):
    """Each of N channels by itself: a token's is the weighted sum of its own and those of the L - 1 tokens before."""

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(taps, 1, width))  # the oldest first
        self.register_buffer("state", torch.zeros(1, taps - 1, width, device="cpu"))

    def forward(self, x: Tensor, position: Position) -> Tensor:
        count, taps = x.shape[1], self.weight.shape[0]
        tokens = torch.cat([self.state * position.begun, x], dim=1)  # (1, L - 1 + S, N)
        self.state.copy_(tokens.narrow(1, count, taps - 1))
        out = tokens.narrow(1, 0, count) * self.weight[0]  # (1, S, N), the weight (1, N)
        for tap in range(1, taps):
            out = out + tokens.narrow(1, tap, count) * self.weight[tap]
        return out


class ConvDecoder(Decoder):
    """A decoder some of whose layers convolve."""

    def __init__(self, model: Architecture, max_context: int) -> None:
        super().__init__(model, max_context, _block)


def _block(model: Architecture, number: int, max_context: int) -> nn.Module:
    layer = model.layers[number]
    return ConvBlock(model, number) if layer.taps else DecoderBlock(model, number, max_context)


class ConvBlock(FedBlock):
    """As a block of a Llama, with a convolution in the place of attention."""

    def __init__(self, model: Architecture, number: int) -> None:
        super().__init__(model, number)
        self.conv = ShortConv(model.dim, model.layers[number].taps)
        self.attention_norm = RMSNorm(model.dim, model.norm_eps)
        self.ffn_norm = RMSNorm(model.dim, model.norm_eps)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        x = x + self.conv(self.attention_norm(x), position)
        out: Tensor = x + self.fed_forward(self.ffn_norm(x))
        return out


class ShortConv(nn.Module):
    """What goes in and what comes out is multiplied by a gate each."""

    def __init__(self, dim: int, taps: int) -> None:
        super().__init__()
        self.gate_in, self.gate_out, self.value, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.conv = CausalConv(dim, taps)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        mixed = self.conv(self.gate_in(x) * self.value(x), position)  # (1, S, N)
        out: Tensor = self.out(self.gate_out(x) * mixed)
        return out


class DeltaRule(nn.Module):
    """The state of `heads` heads, (H, K, V). A call has fewer than `most` tokens: tables are cut to their number."""

    def __init__(self, heads: int, key_dim: int, value_dim: int, most: int) -> None:
        super().__init__()
        place = torch.arange(most, device="cpu")
        row, column = place[:, None], place[None, :]
        self.levels = (most - 1).bit_length()
        self.register_buffer("lower", (row >= column).float(), persistent=False)
        self.register_buffer("one", (row == column).float(), persistent=False)
        for level in range(self.levels):  # the lower left quarters of squares along the diagonal, 2 << level wide
            same = row >> level + 1 == column >> level + 1
            quarters = same & (row >> level & 1 == 1) & (column >> level & 1 == 0)
            self.register_buffer(f"quarters{level}", quarters.float(), persistent=False)
        self.register_buffer("state", torch.zeros(heads, key_dim, value_dim, device="cpu"))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, begun: Tensor) -> Tensor:
        """Return the values (H, S, V) of queries and keys (H, S, K), values (H, S, V), two tables (S, H)."""
        count = q.shape[1]
        lower = self._square("lower", count)
        since = torch.mm(lower, g).t()  # (H, S): the log of the state's decay up to each token
        # (H, S, S): the decay of each token's contribution up to each later token
        decays = torch.exp((since.unsqueeze(2) - since.unsqueeze(1)) * lower) * lower
        since = torch.exp(since).unsqueeze(2)  # (H, S, 1)
        b = b.t().unsqueeze(2)  # (H, S, 1)
        state, columns = self.state * begun, k.transpose(1, 2)  # (H, K, V), (H, K, S)
        inverse = self._inverse(bmm(k, columns) * decays * b, count)  # (H, S, S)
        d = bmm(inverse, (v - bmm(k, state) * since) * b)  # (H, S, V)
        out = bmm(q, state) * since + bmm(bmm(q, columns) * decays, d)
        last = count - 1
        self.state.copy_(state * since.narrow(1, last, 1) + bmm(columns * decays.narrow(1, last, 1), d))
        return out

    def _inverse(self, a: Tensor, count: int) -> Tensor:
        """Return the inverse of I + the strictly lower part of a.

        Squares along the diagonal are inverted, then squares of twice their width: the quarter between two inverted
        squares P and Q becomes -P a Q. That is as exact as solving row by row. The product of I - A, I + A^2, I + A^4
        and so on would lose all digits where keys are similar.
        """
        inverse = self._square("one", count)
        for level in range(self.levels):
            quarters = a * self._square(f"quarters{level}", count)
            inverse = inverse - (bmm(inverse, bmm(quarters, inverse)) if level else quarters)
        return inverse

    def _square(self, name: str, count: int) -> Tensor:
        table: Tensor = getattr(self, name)
        return table.narrow(0, 0, count).narrow(1, 0, count)


class DeltaDecoder(Decoder):
    """A decoder most of whose layers attend linearly; a call has fewer than `max_tokens` tokens."""

    def __init__(self, model: Architecture, max_context: int, max_tokens: int) -> None:
        def block(model: Architecture, number: int, max_context: int) -> nn.Module:
            return DeltaBlock(model, number, max_context, max_tokens)

        super().__init__(model, max_context, block)


class DeltaBlock(FedBlock):
    """As a block of a Llama, its attention of either kind."""

    def __init__(self, model: Architecture, number: int, max_context: int, max_tokens: int) -> None:
        super().__init__(model, number)
        linear = model.layers[number].delta is not None
        self.attention = (
            DeltaAttention(model, number, max_tokens) if linear else GatedAttention(model, number, max_context)
        )
        self.attention_norm = RMSNorm(model.dim, model.norm_eps)
        self.ffn_norm = RMSNorm(model.dim, model.norm_eps)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        x = x + self.attention(self.attention_norm(x), position)
        out: Tensor = x + self.fed_forward(self.ffn_norm(x))
        return out


class GatedAttention(DecoderAttention):
    """Attention with a gated output. Each head of `wq` has its query and then its gate."""

    def __init__(self, model: Architecture, number: int, max_context: int) -> None:
        super().__init__(model, number, max_context)
        self.wq = nn.Linear(model.dim, 2 * model.n_heads * model.head_dim, bias=model.qkv_bias)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        both = self.wq(x).view(*x.shape[:2], -1, 2 * self.head_dim)  # (1, S, H, 2 D)
        q, gate = both.narrow(3, 0, self.head_dim), both.narrow(3, self.head_dim, self.head_dim)
        mixed = self.mix(q, self._heads(self.wk(x)), self._heads(self.wv(x)), position)  # (1, S, H, D)
        out: Tensor = self.wo((mixed * torch.sigmoid(gate)).reshape(*x.shape[:2], -1))
        return out


class DeltaAttention(nn.Module):
    """Keys and values go through a convolution over the latest tokens and into a state of fixed size."""

    def __init__(self, model: Architecture, number: int, max_tokens: int) -> None:
        super().__init__()
        sizes = model.layers[number].delta
        assert sizes is not None
        self.sizes = sizes
        keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
        self.key_width, self.value_width = keys, values
        self.qkv = nn.Linear(model.dim, 2 * keys + values, bias=False)
        self.gate = nn.Linear(model.dim, values, bias=False)
        self.strength = nn.Linear(model.dim, sizes.value_heads, bias=False)
        self.decay = nn.Linear(model.dim, sizes.value_heads, bias=False)
        self.conv = CausalConv(2 * keys + values, sizes.taps)
        self.dt_bias = nn.Parameter(torch.empty(sizes.value_heads))
        self.A_log = nn.Parameter(torch.empty(sizes.value_heads))  # -exp of the checkpoint's: see `build_module`
        self.rule = DeltaRule(sizes.value_heads, sizes.key_dim, sizes.value_dim, max_tokens)
        self.head_norm = RMSNorm(sizes.value_dim, model.norm_eps)
        self.out = nn.Linear(values, model.dim, bias=False)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        sizes, count = self.sizes, x.shape[1]
        mixed = functional.silu(self.conv(self.qkv(x), position))  # (1, S, 2 K + V)
        q = self._keys(mixed.narrow(2, 0, self.key_width)) * sizes.key_dim**-0.5
        k = self._keys(mixed.narrow(2, self.key_width, self.key_width))
        v = mixed.narrow(2, 2 * self.key_width, self.value_width).reshape(count, sizes.value_heads, sizes.value_dim)
        decay = self.A_log * _softplus(self.decay(x)[0] + self.dt_bias)  # (S, H)
        strength = torch.sigmoid(self.strength(x)[0])
        values = self.rule(q, k, v.transpose(0, 1), decay, strength, position.begun)  # (H, S, V)
        values = self.head_norm(values.transpose(0, 1))  # (S, H, V)
        gate = functional.silu(self.gate(x)).reshape(count, sizes.value_heads, sizes.value_dim)
        out: Tensor = self.out((values * gate).reshape(1, count, self.value_width))
        return out

    def _keys(self, x: Tensor) -> Tensor:
        """Return keys (1, S, heads K) as (H, S, K) of unit length, each repeated for the values that share it."""
        sizes, count = self.sizes, x.shape[1]
        x = x.reshape(count, sizes.key_heads, sizes.key_dim)
        x = x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
        shared = sizes.value_heads // sizes.key_heads
        if shared > 1:
            x = torch.cat([x.unsqueeze(2)] * shared, dim=2).reshape(count, sizes.value_heads, sizes.key_dim)
        return x.transpose(0, 1)


def _softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)) without overflow. Delegates support log10 only."""
    return functional.relu(x) + torch.log10(1 + torch.exp(-x.abs())) * math.log(10)
