"""LFM2's layers without attention: a short convolution between two gates."""

from __future__ import annotations

from executorch.examples.models.llama.norm import RMSNorm
from torch import Tensor, nn

from ..architecture import Architecture
from .causal_conv import CausalConv
from .decoder import Block, Decoder, FeedForward, Position


class ConvDecoder(Decoder):
    """A decoder some of whose layers convolve."""

    def __init__(self, model: Architecture, max_context: int) -> None:
        super().__init__(model, max_context, _block)


def _block(model: Architecture, number: int, max_context: int) -> nn.Module:
    layer = model.layers[number]
    return ConvBlock(model, layer.taps) if layer.taps else Block(model, number, max_context)


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
