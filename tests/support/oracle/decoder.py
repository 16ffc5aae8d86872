"""A decoder with a KV cache, as ExecuTorch's runners call it: tokens and a position in, logits of the last token out.

Parts have the names of ExecuTorch's Llama. Queries and keys rotate as pairs of neighbours, by stored tables. Attention
is the fused op that writes the cache itself. Plain ops compute what the fused op cannot: sliding windows over a ring
buffer, and capped scores. A ring has one row for each position modulo its length, and keeps the latest. Tables indexed
by position hold the row of a token and the rows that it sees, so a ring has no state besides its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from executorch.examples.models.llama.norm import RMSNorm
from executorch.examples.models.llama.rope import RotaryEmbedding
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 — registers torch.ops.llama
from torch import Tensor, nn

from webpte.checkpoints.architecture import Architecture, LayerSpec

from .experts import ACTIVATIONS, FedBlock

HIDDEN = 1e30  # subtracted from scores once for each position beyond the window: the weight becomes 0


class CacheRows(NamedTuple):
    """The rows of a ring cache that a call uses."""

    index: Tensor  # the row of each token, (S,)
    mask: Tensor  # added to the scores, (S, R)


class RingTables(nn.Module):
    """Tables of a ring of `rows` rows: the row of each token, and the rows of its `window`, itself included."""

    def __init__(self, max_context: int, rows: int, window: int) -> None:
        super().__init__()
        self.rows = rows
        positions = torch.arange(max_context, device="cpu")
        tables = {
            "index": positions % rows,
            "place": (positions % rows).float()[:, None],  # as floats, (C, 1)
            "back": positions.clamp(max=window - 1).float()[
                :, None
            ],  # the positions before a token that it attends to, (C, 1)
            "row": torch.arange(rows, device="cpu").float()[None],  # (1, R)
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, positions: Tensor) -> CacheRows:
        ahead = self.place.index_select(0, positions) - self.row  # (S, R)
        distance = ahead + (-ahead).clamp(0, 1) * self.rows  # positions from the row's token to the token
        mask = (self.back.index_select(0, positions) - distance).clamp(max=0) * HIDDEN
        return CacheRows(self.index.index_select(0, positions), mask)


class RingCache(nn.Module):
    """A ring of keys and values, heads first, and attention to the rows of the window."""

    def __init__(self, rows: int, heads: int, head_dim: int, cap: float | None) -> None:
        super().__init__()
        self.cap = cap
        self.scale = 1 / math.sqrt(head_dim)
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, heads, rows, head_dim, device="cpu"))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, seen: CacheRows, sinks: Tensor | None = None) -> Tensor:
        """Return attention of queries (1, S, H, D) with new keys and values (1, S, K, D)."""
        self.k_cache.index_copy_(2, seen.index, k.transpose(1, 2))
        self.v_cache.index_copy_(2, seen.index, v.transpose(1, 2))
        return self.read(q, seen, sinks)

    def read(self, q: Tensor, seen: CacheRows, sinks: Tensor | None = None) -> Tensor:
        """Return attention of queries (1, S, H, D) to the rows that are there."""
        _, keys, rows, width = self.k_cache.shape
        count, heads = q.shape[1], q.shape[2]
        together = q.transpose(1, 2).reshape(keys, heads // keys * count, width)  # (K, H / K * S, D)
        scores = torch.bmm(together, self.k_cache[0].transpose(1, 2)) * self.scale  # (K, H / K * S, R)
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        scores = scores.view(heads, count, rows) + seen.mask
        beside = [] if sinks is None else [sinks.view(heads, 1, 1).expand(heads, count, 1)]
        weights = torch.softmax(torch.cat([scores, *beside], -1), -1)[..., :rows].contiguous()
        mixed = torch.bmm(weights.view(keys, heads // keys * count, rows), self.v_cache[0])
        return mixed.view(1, heads, count, width).transpose(1, 2)  # (1, S, H, D)


Turns = Mapping[str, tuple[Tensor, Tensor]]  # cosines and sines of a call's tokens, (S, D / 2), by the rope's name


class Position(NamedTuple):
    """The positions of a call's tokens."""

    start: int  # of the first
    turns: Turns
    seen: Mapping[str, CacheRows]  # of ring caches, by their kind
    written: dict[int, RingCache]  # by the layer
    per_layer: Tensor | None  # the embeddings of layers, (1, S, L, P)
    begun: Tensor  # (1,): 0 at the start of a text, where the state of another text must not be used; otherwise 1


class Decoder(nn.Module):
    """A decoder. `block` builds the layer of a number, which takes (1, S, N) and a Position."""

    def __init__(
        self,
        model: Architecture,
        max_context: int,
        block: Callable[[Architecture, int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.max_context = max_context
        self.logits_cap = model.logits_cap
        self.generate_full_logits = False  # of every token, (1, S, V)
        self.tok_embeddings = nn.Embedding(model.vocab_size, model.dim)
        self.seen = nn.ModuleDict(_kinds_of_rows(model, max_context))
        self.per_layer_dims = (model.n_layers, model.per_layer_dim)
        if model.per_layer_dim:
            columns = model.n_layers * model.per_layer_dim
            self.per_layer_embeddings = nn.Embedding(model.vocab_size, columns)
            self.per_layer_projection = nn.Linear(model.dim, columns, bias=False)
            self.per_layer_norm = RMSNorm(model.per_layer_dim, model.norm_eps)
        layers = [(block or DecoderBlock)(model, number, max_context) for number in range(model.n_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(model.dim, model.norm_eps)
        self.output = nn.Linear(model.dim, model.vocab_size, bias=False)
        self.ropes = tuple(model.ropes)
        for name in model.ropes:
            cosines, sines = map(torch.from_numpy, model.rotary_table(name, max_context))
            self.register_buffer(f"{name}_cos", cosines, persistent=False)
            self.register_buffer(f"{name}_sin", sines, persistent=False)

    def forward(self, tokens: Tensor, attn_options: dict[str, Tensor]) -> Tensor:
        start = attn_options["input_pos"][0].item()
        torch._check(start >= 0)
        torch._check(start < self.max_context)
        x = self.tok_embeddings(tokens)  # (1, S) -> (1, S, N)
        position = self._position(start, attn_options["input_pos"], tokens.shape[1])
        if self.per_layer_dims[1]:
            position = position._replace(per_layer=self._per_layer(tokens, x))
        for layer in self.layers:
            x = layer(x, position)
        if not self.generate_full_logits:
            x = x[:, -1, :]  # (1, N)
        logits: Tensor = self.output(self.norm(x))
        return logits if self.logits_cap is None else torch.tanh(logits / self.logits_cap) * self.logits_cap

    def _per_layer(self, tokens: Tensor, x: Tensor) -> Tensor:
        dims = (*x.shape[:2], *self.per_layer_dims)
        rows: Tensor = self.per_layer_embeddings(tokens).view(dims)
        return rows + self.per_layer_norm(self.per_layer_projection(x).view(dims))

    def _position(self, start: int, first: Tensor, count: int) -> Position:
        begun = first.clamp(max=1).to(torch.float32)
        if not self.seen:
            return Position(start, self._turns(lambda table: table.narrow(0, start, count)), {}, {}, None, begun)
        # Ring caches are written outside delegates, and the exporter cannot slice by a number in several delegates.
        positions = first + torch.arange(count)  # (S,)
        seen = {kind: rows(positions) for kind, rows in self.seen.items()}
        return Position(start, self._turns(lambda table: table.index_select(0, positions)), seen, {}, None, begun)

    def _turns(self, rows: Callable[[Tensor], Tensor]) -> Turns:
        tables = ((name, getattr(self, f"{name}_cos"), getattr(self, f"{name}_sin")) for name in self.ropes)
        return {name: (rows(cosines), rows(sines)) for name, cosines, sines in tables}


class DecoderBlock(FedBlock):
    """Attention and feed-forward, each after a norm and added to its input."""

    def __init__(self, model: Architecture, number: int, max_context: int) -> None:
        super().__init__(model, number)
        self.attention = DecoderAttention(model, number, max_context)
        self.attention_norm = RMSNorm(model.dim, model.norm_eps) if model.pre_norms else nn.Identity()
        self.ffn_norm = RMSNorm(model.dim, model.norm_eps) if model.pre_norms else nn.Identity()
        self.post_attention_norm = RMSNorm(model.dim, model.norm_eps) if model.post_norms else nn.Identity()
        self.post_ffn_norm = RMSNorm(model.dim, model.norm_eps) if model.post_norms else nn.Identity()
        self.number, self.per_layer_dim = number, model.per_layer_dim
        if model.per_layer_dim:
            self.activation = ACTIVATIONS[model.activation]
            self.per_layer_gate = nn.Linear(model.dim, model.per_layer_dim, bias=False)
            self.per_layer_out = nn.Linear(model.per_layer_dim, model.dim, bias=False)
            self.per_layer_out_norm = RMSNorm(model.dim, model.norm_eps)
        self.scale = RMSNorm(1) if model.layer_scales else None  # for its weight

    def forward(self, x: Tensor, position: Position) -> Tensor:
        x = x + self.post_attention_norm(self.attention(self.attention_norm(x), position))
        out: Tensor = x + self.post_ffn_norm(self.fed_forward(self.ffn_norm(x)))
        if position.per_layer is not None:
            own = self.activation(self.per_layer_gate(out)) * position.per_layer[:, :, self.number]
            out = out + self.per_layer_out_norm(self.per_layer_out(own))
        return out if self.scale is None else out * self.scale.weight


class DecoderAttention(nn.Module):
    """Grouped heads over a cache of (1, C, H, D)."""

    def __init__(self, model: Architecture, number: int, max_context: int) -> None:
        super().__init__()
        self.rope = model.layers[number].rope
        self.number, self.shares = number, model.layers[number].shares
        self.head_dim = width = model.head_width(number)
        wide, narrow = model.n_heads * width, model.n_kv_heads * width
        self.wq = nn.Linear(model.dim, wide, bias=model.qkv_bias)
        if self.shares is None:
            self.wk = nn.Linear(model.dim, narrow, bias=model.qkv_bias)
            self.wv = nn.Linear(model.dim, narrow, bias=model.qkv_bias)
        self.wo = nn.Linear(wide, model.dim, bias=model.out_bias)
        by_head, self.norms_rotated = model.qk_norm_by_head, model.qk_norm_rotated
        self.q_norm = RMSNorm(width if by_head else wide, model.norm_eps) if model.qk_norm else None
        own = model.qk_norm and self.shares is None
        self.k_norm = RMSNorm(width if by_head else narrow, model.norm_eps) if own else None
        self.value_eps = model.norm_eps if model.value_norm else None
        self.norms_by_head = by_head
        self.rotate = RotaryEmbedding()
        self.seen = _kind_of_rows(model.layers[number])
        rows, sizes = model.layers[number].rows, (model.n_kv_heads, width)
        self.sinks = nn.Parameter(torch.zeros(model.n_heads, device="cpu")) if model.sinks else None
        self.kv_cache = Cache(max_context, *sizes) if rows is None else RingCache(rows, *sizes, model.attention_cap)

    def forward(self, x: Tensor, position: Position) -> Tensor:
        q = self._heads(self.wq(x))  # (1, S, H, D)
        if self.shares is not None:
            return self._out(x, self._shared(q, position))
        k, v = (self._heads(linear(x)) for linear in (self.wk, self.wv))
        if self.value_eps is not None:
            v = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + self.value_eps)
        return self._out(x, self.mix(q, k, v, position))

    def _out(self, x: Tensor, mixed: Tensor) -> Tensor:
        out: Tensor = self.wo(mixed.reshape(*x.shape[:2], -1))  # (1, S, H, D) -> (1, S, N)
        return out

    def _shared(self, q: Tensor, position: Position) -> Tensor:
        """Return the attention output of each query to the keys and values of another layer."""
        assert self.shares is not None and self.rope is not None and self.seen is not None
        q = self._normed(q, self.q_norm)
        q, _ = self.rotate(q, q, *position.turns[self.rope])
        return position.written[self.shares].read(q, position.seen[self.seen])

    def mix(self, q: Tensor, k: Tensor, v: Tensor, position: Position) -> Tensor:
        """Return the attention output of each query, (1, S, H, D)."""
        if not self.norms_rotated:
            q, k = self._normed(q, self.q_norm), self._normed(k, self.k_norm)
        if self.rope is not None:
            q, k = self.rotate(q, k, *position.turns[self.rope])
        if self.norms_rotated:
            q, k = self._normed(q, self.q_norm), self._normed(k, self.k_norm)
        position.written[self.number] = self.kv_cache
        own = [] if self.sinks is None else [self.sinks]
        mixed: Tensor = self.kv_cache(q, k, v, position.start if self.seen is None else position.seen[self.seen], *own)
        return mixed

    def _normed(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """Normalize queries or keys, (1, S, H, D): each head, or all heads together."""
        if norm is None:
            return x
        out: Tensor = norm(x) if self.norms_by_head else norm(x.flatten(2)).view(x.shape)
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim)


class Cache(nn.Module):
    """The KV cache of all tokens so far, and causal attention to it."""

    def __init__(self, max_context: int, heads: int, head_dim: int) -> None:
        super().__init__()
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, max_context, heads, head_dim, device="cpu"))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
        torch.ops.llama.update_cache(k, self.k_cache, start)
        torch.ops.llama.update_cache(v, self.v_cache, start)
        mixed: Tensor = torch.ops.llama.custom_sdpa(q, self.k_cache, self.v_cache, start, None, 0, True)
        return mixed


def _kind_of_rows(layer: LayerSpec) -> str | None:
    return None if layer.rows is None else f"{layer.rows} rows of {layer.window}"


def _kinds_of_rows(model: Architecture, max_context: int) -> dict[str, nn.Module]:
    """Return the tables of each kind of ring, which layers of that kind share."""
    layers = {kind: layer for layer in model.layers if (kind := _kind_of_rows(layer)) is not None}
    return {
        kind: RingTables(max_context, layer.rows or 0, layer.window or max_context) for kind, layer in layers.items()
    }
