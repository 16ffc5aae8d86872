"""Attention of plain ops, for what the fused one cannot do: windows over a ring of rows, and scores that are capped.

A ring has a row for each position modulo its length, and keeps the latest. Where a token goes and which rows it sees
is looked up in tables, by the position alone: nothing of it is a state.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

HIDDEN = 1e30  # is subtracted from scores, once for each position too far: no weight is left


class Seen(NamedTuple):
    """Of a call's tokens."""

    index: Tensor  # the row of each, (S,)
    mask: Tensor  # what is added to their scores, (S, R)


class Rows(nn.Module):
    """Where a cache of `rows` keeps tokens, and which of them a token sees: the latest `window`, itself included."""

    def __init__(self, max_context: int, rows: int, window: int) -> None:
        super().__init__()
        self.rows = rows
        positions = torch.arange(max_context, device="cpu")
        tables = {
            "index": positions % rows,
            "place": (positions % rows).float()[:, None],  # as numbers to compute with, (C, 1)
            "back": positions.clamp(max=window - 1).float()[:, None],  # how far back a token sees, (C, 1)
            "row": torch.arange(rows, device="cpu").float()[None],  # (1, R)
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, positions: Tensor) -> Seen:
        ahead = self.place.index_select(0, positions) - self.row  # (S, R)
        behind = ahead + (-ahead).clamp(0, 1) * self.rows  # how far back from the token the row's is
        mask = (self.back.index_select(0, positions) - behind).clamp(max=0) * HIDDEN
        return Seen(self.index.index_select(0, positions), mask)


class PlainCache(nn.Module):
    """Keys and values, heads first, and attention to those that are seen."""

    def __init__(self, rows: int, heads: int, head_dim: int, cap: float | None) -> None:
        super().__init__()
        self.cap = cap
        self.scale = 1 / math.sqrt(head_dim)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, heads, rows, head_dim, device="cpu"))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, seen: Seen) -> Tensor:
        """Of queries (1, S, H, D), keys and values (1, S, K, D)."""
        self.k_cache.index_copy_(2, seen.index, k.transpose(1, 2))
        self.v_cache.index_copy_(2, seen.index, v.transpose(1, 2))
        _, keys, rows, width = self.k_cache.shape
        count, heads = q.shape[1], q.shape[2]
        together = q.transpose(1, 2).reshape(keys, heads // keys * count, width)  # (K, H / K * S, D)
        scores = torch.bmm(together, self.k_cache[0].transpose(1, 2)) * self.scale  # (K, H / K * S, R)
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        weights = torch.softmax(scores.view(heads, count, rows) + seen.mask, -1)
        mixed = torch.bmm(weights.view(keys, heads // keys * count, rows), self.v_cache[0])
        return mixed.view(1, heads, count, width).transpose(1, 2)  # (1, S, H, D)
