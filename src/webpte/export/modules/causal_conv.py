"""A convolution over the latest tokens, whose state is what it needs of the calls before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .decoder import Position


class CausalConv(nn.Module):
    """Each of N channels by itself: a token's is the weighted sum of its own and those of the L - 1 tokens before."""

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(taps, 1, width))  # the oldest first
        self.register_buffer("state", torch.zeros(1, taps - 1, width, device="cpu"))

    def forward(self, x: Tensor, position: Position) -> Tensor:
        count, taps = x.shape[1], self.weight.shape[0]
        known = torch.cat([self.state * position.begun, x], dim=1)  # (1, L - 1 + S, N)
        self.state.copy_(known.narrow(1, count, taps - 1))
        out = known.narrow(1, 0, count) * self.weight[0]  # (1, S, N), the weight (1, N)
        for tap in range(1, taps):
            out = out + known.narrow(1, tap, count) * self.weight[tap]
        return out
