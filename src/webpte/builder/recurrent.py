"""Record layers with a recurrent state: gated convolutions, and linear attention by the gated delta rule."""

from __future__ import annotations

import math

import numpy as np

from ..checkpoints.architecture import Architecture, Delta
from .layers import LayerTrace
from .ops import Array, constant
from .trace import TracedInt, TracedTensor

_EPS = 1e-6  # of the length of keys


class RecurrentTrace:
    """Recurrent layers of one call: `count` tokens; `begun` (1,) is 0 at the start of a text and otherwise 1."""

    def __init__(
        self, layers: LayerTrace, model: Architecture, max_tokens: int, first: TracedTensor, count: TracedInt
    ) -> None:
        self._g, self._model, self._count = layers, model, count
        self._max_tokens = max_tokens
        self._begun = layers.to_float(layers.clamp(first, None, 1))
        self._squares: dict[str, TracedTensor] = {}

    def short_conv(self, x: TracedTensor, name: str, taps: int) -> TracedTensor:
        """Record a convolution whose input and output are multiplied by a gate each."""
        g = self._g
        gate, value = (g.linear(x, f"{name}.{part}") for part in ("gate_in", "value"))
        mixed = self._causal_conv(g.mul(gate, value), f"{name}.conv", self._model.dim, taps)
        return g.linear(g.mul(g.linear(x, f"{name}.gate_out"), mixed), f"{name}.out")

    def _causal_conv(self, x: TracedTensor, name: str, width: int, taps: int) -> TracedTensor:
        """Record, for each channel, the weighted sum of a token and the `taps - 1` tokens before."""
        g, count = self._g, self._count
        state = g.packed_zeros((1, taps - 1, width))
        length = TracedInt(count.bound + taps - 1)
        tokens = g.cat([g.mul(state, self._begun), x], 1, length)  # (1, L - 1 + S, N)
        end = g.plus(count, taps - 1)
        g.slice_into(state, tokens, 1, count, end)
        weight = g.packed(g.parameter(f"{name}.weight"))  # (L, 1, N)
        out = g.mul(g.slice(tokens, 1, 0, count, count), g.select(weight, 0, 0))
        for tap in range(1, taps):
            last = end if tap == taps - 1 else g.plus(tap, count)
            out = g.add(out, g.mul(g.slice(tokens, 1, tap, last, count), g.select(weight, 0, tap)))
        return out

    def delta_attention(self, x: TracedTensor, name: str, sizes: Delta) -> TracedTensor:
        """Record linear attention: keys and values go through a convolution and into a state of fixed size."""
        g, count = self._g, self._count
        keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
        width = 2 * keys + values
        mixed = g.silu(self._causal_conv(g.linear(x, f"{name}.qkv"), f"{name}.conv", width, sizes.taps))
        q = g.scaled(self._keys(g.slice(mixed, 2, 0, keys, keys), sizes), sizes.key_dim**-0.5)  # (H, S, K)
        k = self._keys(g.slice(mixed, 2, keys, 2 * keys, keys), sizes)
        by_head = (count, sizes.value_heads, sizes.value_dim)
        v = g.view(g.slice(mixed, 2, 2 * keys, width, values), by_head)  # (S, H, V)
        rate = g.packed(g.parameter(f"{name}.A_log", lambda values: -np.exp(values)))
        step = g.add(g.select(g.linear(x, f"{name}.decay"), 0, 0), g.packed(g.parameter(f"{name}.dt_bias")))
        decay = g.mul(rate, self._softplus(step))  # (S, H)
        strength = g.unary("sigmoid", g.select(g.linear(x, f"{name}.strength"), 0, 0))
        out = self._rule(q, k, g.permute(v, (1, 0, 2)), decay, strength, sizes)
        out = g.norm(g.permute(out, (1, 0, 2)), f"{name}.head_norm", self._model.norm_eps)  # (S, H, V)
        gate = g.silu(g.linear(x, f"{name}.gate"))
        return g.linear(g.mul(g.view(out, (1, count, values)), gate), f"{name}.out")

    def _keys(self, x: TracedTensor, sizes: Delta) -> TracedTensor:
        """Return keys (1, S, heads K) as (H, S, K) of unit length, each repeated for the values that share it."""
        g, count = self._g, self._count
        x = g.view(x, (count, sizes.key_heads, sizes.key_dim))
        squares = g.call("aten.sum.dim_IntList", g.mul(x, x), (-1,), True, None, dims=(count, sizes.key_heads, 1))
        x = g.mul(x, g.unary("rsqrt", g.add(squares, g.scalar(_EPS))))
        shared = sizes.value_heads // sizes.key_heads
        if shared > 1:
            repeated = g.cat([g.unsqueeze(x, 2)] * shared, 2, shared)
            x = g.view(repeated, (count, sizes.value_heads, sizes.key_dim))
        return g.permute(x, (1, 0, 2))

    def _softplus(self, x: TracedTensor) -> TracedTensor:
        """Return log(1 + exp(x)) without overflow. Delegates support log10 only."""
        g = self._g
        small = g.unary("exp", g.unary("neg", g.unary("abs", x)))
        logarithm = g.unary("log10", g.add(small, g.scalar(1.0)))
        return g.add(g.unary("relu", x), g.scaled(logarithm, math.log(10)))

    def _rule(
        self,
        q: TracedTensor,
        k: TracedTensor,
        v: TracedTensor,
        decay: TracedTensor,
        strength: TracedTensor,
        sizes: Delta,
    ) -> TracedTensor:
        """Return the values (H, S, V) of queries and keys (H, S, K), values (H, S, V), two tables (S, H)."""
        g, count, heads = self._g, self._count, sizes.value_heads
        lower = self._square("lower")
        sums = g.call("aten.mm.default", lower, decay, dims=(count, heads))
        since = g.permute(sums, (1, 0))  # (H, S): the log of the state's decay up to each token
        between = g.sub(g.unsqueeze(since, 2), g.unsqueeze(since, 1))
        # (H, S, S): the decay of each token's contribution up to each later token
        decays = g.mul(g.unary("exp", g.mul(between, lower)), lower)
        since = g.unsqueeze(g.unary("exp", since), 2)  # (H, S, 1)
        strength = g.unsqueeze(g.permute(strength, (1, 0)), 2)  # (H, S, 1)
        held = g.packed_zeros((heads, sizes.key_dim, sizes.value_dim))
        state, columns = g.mul(held, self._begun), g.permute(k, (0, 2, 1))  # (H, K, V), (H, K, S)
        inverse = self._inverse(g.mul(g.mul(g.bmm(k, columns), decays), strength))  # (H, S, S)
        lacking = g.mul(g.sub(v, g.mul(g.bmm(k, state), since)), strength)
        change = g.bmm(inverse, lacking)  # (H, S, V)
        out = g.add(g.mul(g.bmm(q, state), since), g.bmm(g.mul(g.bmm(q, columns), decays), change))
        last = g.integer("sub", count, 1, out=TracedInt(count.bound - 1))
        kept = g.mul(state, g.slice(since, 1, last, count, 1))
        gained = g.bmm(g.mul(columns, g.slice(decays, 1, last, count, 1)), change)
        g.call_into(held, "aten.add.Tensor", kept, gained, 1)
        return out

    def _inverse(self, a: TracedTensor) -> TracedTensor:
        """Return the inverse of I + the strictly lower part of a, squares of twice the width at each level."""
        g = self._g
        inverse = self._square("one")
        for level in range((self._max_tokens - 1).bit_length()):
            quarters = g.mul(a, self._square(f"quarters{level}"))
            inverse = g.sub(inverse, g.bmm(inverse, g.bmm(quarters, inverse)) if level else quarters)
        return inverse

    def _square(self, name: str) -> TracedTensor:
        """Return a table (S, S), which all layers share."""
        if name not in self._squares:
            g, most = self._g, self._max_tokens
            table = g.packed(constant(f"{name} of {most}", _table(name, most)))
            rows = g.slice(table, 0, 0, self._count, self._count)
            self._squares[name] = g.slice(rows, 1, 0, self._count, self._count)
        return self._squares[name]


def _table(name: str, most: int) -> Array:
    place = np.arange(most)
    row, column = place[:, None], place[None, :]
    if name == "lower":
        marked = row >= column
    elif name == "one":
        marked = row == column
    else:  # the lower left quarters of squares along the diagonal
        level = int(name.removeprefix("quarters"))
        same = row >> level + 1 == column >> level + 1
        marked = same & (row >> level & 1 == 1) & (column >> level & 1 == 0)
    return marked.astype("<f4")
