"""Layers of LFM2: a gated convolution over the latest tokens, whose state holds the tokens of previous calls."""

from __future__ import annotations

import torch
from executorch.examples.models.llama.norm import RMSNorm
from torch import Tensor, nn

from ..architecture import Architecture
from .decoder import Decoder, DecoderBlock, FeedForward, Position


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
    return ConvBlock(model, layer.taps) if layer.taps else DecoderBlock(model, number, max_context)


class ConvBlock(nn.Module):
    """As a block of a Llama, with a convolution in the place of attention."""

    def __init__(self, model: Architecture, taps: int) -> None:
        super().__init__()
        self.conv = ShortConv(model.dim, taps)
        self.feed_forward = FeedForward(model)
        self.attention_norm = RMSNorm(model.dim, model.norm_eps)
        self.ffn_norm = RMSNorm(model.dim, model.norm_eps)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        x = x + self.conv(self.attention_norm(x), position)
        out: Tensor = x + self.feed_forward(self.ffn_norm(x))
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
