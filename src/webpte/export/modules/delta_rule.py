"""The gated delta rule over the tokens of a call at once, by matrix products: no loop, whatever their number.

A head keeps a matrix S. A token with key k, value v, log decay g and strength b turns it into
exp(g) S + k d', where d = b (v - (exp(g) S)' k) is what S lacks to answer k with v; its query reads S' q. The d of all
tokens solve (I + A) d = r with A strictly lower triangular: A holds what each sees of those before it.
"""

from __future__ import annotations

import torch
from torch import Tensor, bmm, nn


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
        """(H, S, K), (H, S, K), (H, S, V), twice (S, H), (1,) -> (H, S, V)."""
        count = q.shape[1]
        lower = self._square("lower", count)
        since = torch.mm(
            lower, g
        ).t()  # (H, S): the log of what is left, behind each token, of what was there before all
        left = torch.exp((since.unsqueeze(2) - since.unsqueeze(1)) * lower) * lower  # (H, S, S): ... of each before it
        since = torch.exp(since).unsqueeze(2)  # (H, S, 1)
        b = b.t().unsqueeze(2)  # (H, S, 1)
        state, columns = self.state * begun, k.transpose(1, 2)  # (H, K, V), (H, K, S)
        seen = self._inverse(bmm(k, columns) * left * b, count)  # (H, S, S)
        d = bmm(seen, (v - bmm(k, state) * since) * b)  # (H, S, V)
        out = bmm(q, state) * since + bmm(bmm(q, columns) * left, d)
        last = count - 1
        self.state.copy_(state * since.narrow(1, last, 1) + bmm(columns * left.narrow(1, last, 1), d))
        return out

    def _inverse(self, a: Tensor, count: int) -> Tensor:
        """Of I + the strictly lower part of a: squares along the diagonal are inverted, then twice as wide ones.

        What stands in the quarter between two inverted squares P and Q becomes -P a Q. That is as exact as solving row
        by row; the product of I - A, I + A^2, I + A^4 ... would lose all digits where keys are alike.
        """
        found = self._square("one", count)
        for level in range(self.levels):
            quarters = a * self._square(f"quarters{level}", count)
            found = found - (bmm(found, bmm(quarters, found)) if level else quarters)
        return found

    def _square(self, name: str, count: int) -> Tensor:
        table: Tensor = getattr(self, name)
        return table.narrow(0, 0, count).narrow(1, 0, count)
