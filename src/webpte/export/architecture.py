"""Describe what a language model computes, independently of the checkpoint's format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    import torch


MAX_LAYERS = 1000
MAX_ELEMENTS = 1 << 24  # of a row of a weight or of a state: sizes are refused before memory is taken for them


@dataclass(frozen=True)
class Rope:
    """How queries and keys turn with their position: pair i by `theta ** (-2 i / width) / divisors[i]` a step."""

    theta: float
    width: int  # elements of each head that turn, its first ones
    divisors: tuple[float, ...] | None = None  # one for each pair; None is ones
    amplitude: float = 1.0  # cosines and sines are multiplied by it
    # Divisors of contexts above `original`: LongRoPE has two sets.
    long_divisors: tuple[float, ...] | None = None
    original: int | None = None

    def tables(self, context: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of `context` positions, (C, D / 2); pairs that do not turn stay as they are."""
        import torch

        long = self.long_divisors is not None and self.original is not None and context > self.original
        divisors = self.long_divisors if long else self.divisors
        frequencies = 1.0 / (self.theta ** (torch.arange(0, self.width, 2, device="cpu").float() / self.width))
        if divisors is not None:
            frequencies = frequencies / torch.tensor(divisors, dtype=torch.float32, device="cpu")
        angles = torch.outer(torch.arange(context, device="cpu").float(), frequencies)  # (C, width / 2)
        still = torch.zeros(context, (head_dim - self.width) // 2, device="cpu")
        cosines = torch.cat([angles.cos() * self.amplitude, still + 1], dim=1)
        sines = torch.cat([angles.sin() * self.amplitude, still], dim=1)
        return cosines, sines


@dataclass(frozen=True)
class Delta:
    """Linear attention by the gated delta rule: heads of a state of (key_dim, value_dim)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int  # latest tokens that queries, keys and values are convolved over


@dataclass(frozen=True)
class LayerSpec:
    """In what a layer may differ from its neighbours."""

    rope: str | None = "rope"  # which of the model's turns its queries and keys; None: not at all
    window: int | None = None  # how many tokens a token sees, itself included, where that is fewer than all before it
    rows: int | None = None  # of its cache, where attention is of plain ops; None: the fused one has all of the context
    taps: int = 0  # latest tokens that it convolves over, itself included, in the place of attention; 0: it attends
    delta: Delta | None = None  # it attends linearly


@dataclass(frozen=True)
class Architecture:
    """A decoder. Sizes are named as by ExecuTorch's Llama."""

    dim: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_dim: int
    vocab_size: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    ropes: Mapping[str, Rope]
    tied: bool = False  # the output head is the embedding
    qkv_bias: bool = False
    out_bias: bool = False  # of the linear behind attention
    mlp_bias: bool = False
    qk_norm: bool = False  # queries and keys are normalised by head, before they turn
    post_norms: bool = False  # what attention and the feed-forward add is normalised before
    norm_offset: float = 0.0  # is added to the weights of all norms
    activation: str = "silu"  # of the feed-forward's gate, or "gelu_tanh"
    attention_cap: float | None = None  # scores x become cap * tanh(x / cap)
    logits_cap: float | None = None
    attention_scale: float | None = None  # of scores; None is 1 / sqrt(head_dim)
    # These are multiplied into weights when they are read: the graph stays that of a Llama.
    embedding_factor: float = 1.0
    residual_factor: float = 1.0  # of what attention and the feed-forward add
    logits_factor: float = 1.0

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def query_factor(self) -> float:
        """What queries are multiplied by for attention that divides scores by the root of head_dim."""
        return 1.0 if self.attention_scale is None else self.attention_scale * math.sqrt(self.head_dim)

    def with_rows(self, max_context: int, max_tokens: int) -> Architecture:
        """Say of each layer how many rows its cache has. One of a window needs those that the first token of a call
        sees, and one for each further token; a call has fewer than `max_tokens`."""

        def rows(layer: LayerSpec) -> int | None:
            if layer.window is not None and layer.window < max_context:
                return min(max_context, layer.window + max_tokens - 2)
            return max_context if self.attention_cap is not None else None

        return replace(self, layers=tuple(replace(layer, rows=rows(layer)) for layer in self.layers))

    def reach(self, max_context: int, max_tokens: int) -> tuple[int, int] | None:
        """Positions before a token that it needs, and latest positions that caches hold; None: all of the fused op."""
        plain = [layer for layer in self.with_rows(max_context, max_tokens).layers if layer.rows is not None]
        rings = [layer for layer in plain if layer.rows != max_context]
        if not rings:
            return (max_context, max_context) if plain else None
        return max((layer.window or 1) - 1 for layer in rings), min(layer.rows or 0 for layer in rings)

    @property
    def has_recurrent_state(self) -> bool:
        """Whether layers keep a state that is that of the last token, and not a row for each."""
        return any(layer.taps or layer.delta is not None for layer in self.layers)

    def check(self, where: str) -> None:
        """Sizes that a module can have; heads that share keys evenly and turn in pairs."""
        deltas = [layer.delta for layer in self.layers if layer.delta is not None]
        products = {
            "vocab_size": self.vocab_size,
            "the feed-forward's width": self.hidden_dim,
            "heads times their width": self.n_heads * self.head_dim,
            "taps times the width": max((layer.taps for layer in self.layers), default=0) * self.dim,
            "a state of linear attention": max((d.value_heads * d.key_dim * d.value_dim for d in deltas), default=0),
            "taps of linear attention": max(
                (d.taps * (d.key_heads * d.key_dim * 2 + d.value_heads * d.value_dim) for d in deltas), default=0
            ),
        }
        for name, size in products.items():
            if size > MAX_ELEMENTS:
                raise UnsupportedError(f"{where}: {name} is {size}; at most {MAX_ELEMENTS} is allowed", code="size")
        if self.n_heads % self.n_kv_heads:
            raise FormatError(
                f"{where}: {self.n_heads} heads cannot share {self.n_kv_heads} key and value heads evenly"
            )
        if self.head_dim % 2 or any(rope.width % 2 or rope.width > self.head_dim for rope in self.ropes.values()):
            widths = ", ".join(str(rope.width) for rope in self.ropes.values())
            raise UnsupportedError(
                f"{where}: of heads {self.head_dim} wide, {widths} turn; even numbers are wanted", code="odd_width"
            )
        for name, rope in self.ropes.items():
            for divisors in (rope.divisors, rope.long_divisors):
                if divisors is not None and len(divisors) != rope.width // 2:
                    raise FormatError(
                        f"{where}: {name} has {len(divisors)} factors of frequencies for {rope.width // 2} pairs",
                        code="factor_count",
                    )
