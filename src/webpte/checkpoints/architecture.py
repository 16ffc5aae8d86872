"""Describe what a language model computes, independently of the checkpoint's format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import FormatError, UnsupportedError

Array = np.ndarray[Any, Any]

MAX_LAYERS = 1000
MAX_EXPERTS = 1024  # of a layer
MAX_ELEMENTS = 1 << 24  # of a row of a weight or of a state: larger sizes are refused before memory is allocated


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: pair i of queries and keys rotates by `theta ** (-2 i / width) / divisors[i]` per position."""

    theta: float
    width: int  # the number of leading elements of each head that rotate
    divisors: tuple[float, ...] | None = None  # one for each pair; None: all 1
    amplitude: float = 1.0  # cosines and sines are multiplied by it
    # Divisors for contexts above `original`: LongRoPE has two sets.
    long_divisors: tuple[float, ...] | None = None
    original: int | None = None

    def tables(self, context: int, head_dim: int) -> tuple[Array, Array]:
        """Return cosines and sines of `context` positions, (C, D / 2) f32. Pairs beyond `width` do not rotate.

        Frequencies and angles are rounded to f32, as models are trained; functions are computed in f64, so that the
        result does not depend on the library.
        """
        long = self.long_divisors is not None and self.original is not None and context > self.original
        divisors = self.long_divisors if long else self.divisors
        frequencies: Array = (1.0 / self.theta ** (np.arange(0, self.width, 2) / self.width)).astype(np.float32)
        if divisors is not None:
            frequencies = frequencies / np.asarray(divisors, np.float32)
        angles = np.outer(np.arange(context, dtype=np.float32), frequencies).astype(np.float64)  # (C, width / 2)
        still = ((0, 0), (0, (head_dim - self.width) // 2))
        amplitude = np.float32(self.amplitude)
        cosines = np.pad(np.cos(angles).astype(np.float32) * amplitude, still, constant_values=1)
        return cosines, np.pad(np.sin(angles).astype(np.float32) * amplitude, still)


@dataclass(frozen=True)
class Delta:
    """Linear attention by the gated delta rule: heads of a state of (key_dim, value_dim)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int  # kernel size of the convolution over queries, keys and values


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: gated feed-forwards, of which a router chooses some for each token."""

    count: int
    chosen: int
    hidden_dim: int  # of an expert
    scoring: str = "softmax"  # of the router's logits: "softmax" or "sigmoid"
    normalized: bool = True  # the scores of the chosen experts are divided by their sum
    eps: float = 0.0  # added to the sum
    factor: float = 1.0  # of the result
    biased: bool = False  # a bias of each expert is added to its score for the choice
    shared: bool = False  # a feed-forward of all tokens is added
    shared_gate: bool = False  # it has a gate for each token
    linear_bias: bool = False  # the router and the matrices of experts have biases

    def check(self, where: str) -> None:
        """Check that a token can choose its experts."""
        if not 1 <= self.chosen <= self.count or not 2 <= self.count <= MAX_EXPERTS:
            raise UnsupportedError(
                argument=f"{where}: experts",
                expected=f"2 to {MAX_EXPERTS}, of which a token chooses at least one",
                got=f"{self.chosen} of {self.count}",
                code="expert_count",
            )
        if self.hidden_dim % 4:
            raise UnsupportedError(
                argument=f"{where}: the width of an expert",
                expected="a multiple of 4",
                got=self.hidden_dim,
                code="odd_width",
            )


@dataclass(frozen=True)
class LayerSpec:
    """The properties in which layers of one model may differ."""

    rope: str | None = "rope"  # the name of its rope; None: no rotary embedding
    window: int | None = None  # the tokens that a token attends to, itself included; None: all before it
    rows: int | None = (
        None  # of its cache if attention is computed by plain ops; None: fused attention over the whole context
    )
    head_dim: int | None = None  # None: the model's
    hidden_dim: int | None = None  # of the feed-forward; None: the model's
    shares: int | None = None  # the number of an earlier layer whose keys and values it attends to; None: its own
    taps: int = 0  # kernel size of the convolution that replaces attention; 0: attention
    delta: Delta | None = None  # linear attention
    experts: Experts | None = None  # in place of the feed-forward, or beside it


@dataclass(frozen=True)
class Architecture:
    """A decoder. Sizes have the names of ExecuTorch's Llama."""

    dim: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_dim: int
    vocab_size: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    ropes: Mapping[str, Rope]
    tied: bool = False  # the output head shares the embedding's weights
    qkv_bias: bool = False
    out_bias: bool = False  # of the linear after attention
    mlp_bias: bool = False
    qk_norm: bool = False  # queries and keys are normalized
    qk_norm_by_head: bool = True  # each head alone; otherwise all heads together
    qk_norm_rotated: bool = False  # after the rotation; otherwise before it
    value_norm: bool = False  # the value of each head is normalized, without weights
    pre_norms: bool = True  # the inputs of attention and feed-forward are normalized
    post_norms: bool = False  # the outputs of attention and feed-forward are normalized
    norm_offset: float = 0.0  # added to the weights of all norms
    activation: str = (
        "silu"  # of the feed-forward: "silu", "gelu_tanh", "relu2" (the square of relu) , "xielu" or "clamped_silu"
    )
    gated_mlp: bool = True  # the feed-forward has a gate with the activation; otherwise it has one input layer, w3
    attention_cap: float | None = None  # scores x become cap * tanh(x / cap)
    logits_cap: float | None = None
    attention_scale: float | None = None  # of scores; None: 1 / sqrt(head_dim)
    query_gate: bool = False  # each head of the queries' layer has a query and then a gate, of the attention's output
    sinks: bool = False  # each query head has a score that joins its softmax and has no value
    # Multiplied into weights when they are read, so that the graph stays that of a Llama.
    embedding_factor: float = 1.0
    residual_factor: float = 1.0  # of the outputs of attention and feed-forward
    logits_factor: float = 1.0
    per_layer_dim: int = 0  # of the embedding that each layer adds to its result for a token; 0: layers add none
    layer_scales: bool = False  # the result of each layer is multiplied by a number of its own
    max_positions: int | None = None  # later positions need operations that are not supported; None: no limit

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def head_width(self, number: int) -> int:
        """Return the width of the heads of a layer."""
        return self.layers[number].head_dim or self.head_dim

    def hidden_width(self, number: int) -> int:
        """Return the width of the feed-forward of a layer."""
        return self.layers[number].hidden_dim or self.hidden_dim

    def rotary_table(self, name: str, context: int) -> tuple[Array, Array]:
        """Return the cosines and sines of a rope for the heads that it rotates."""
        return self.ropes[name].tables(context, self._rotated_width(name))

    def _rotated_width(self, name: str) -> int:
        """Return the width of the heads that a rope rotates, which is the same in all its layers."""
        widths = (self.head_width(number) for number, layer in enumerate(self.layers) if layer.rope == name)
        return next(widths, self.head_dim)

    def query_factor(self, number: int) -> float:
        """Return the factor of a layer's queries for attention that divides scores by the root of the heads' width."""
        return 1.0 if self.attention_scale is None else self.attention_scale * math.sqrt(self.head_width(number))

    def with_rows(self, max_context: int, max_tokens: int) -> Architecture:
        """Return the architecture with the rows of each layer's cache.

        A layer with a window needs the rows that the first token of a call attends to, and one for each further token.
        A call has fewer than `max_tokens` tokens. Caches that several layers read are outside delegates, as rings are.
        """
        plain = self.attention_cap is not None or self.sinks or any(layer.shares is not None for layer in self.layers)

        def rows(layer: LayerSpec) -> int | None:
            if layer.window is not None and layer.window < max_context:
                return min(max_context, layer.window + max_tokens - 2)
            return max_context if plain else None

        return replace(self, layers=tuple(replace(layer, rows=rows(layer)) for layer in self.layers))

    def cache_window(self, max_context: int, max_tokens: int) -> tuple[int, int] | None:
        """Return the positions before a token that it needs, and the latest positions that caches hold.

        None means that all layers have fused attention over the whole context.
        """
        plain = [layer for layer in self.with_rows(max_context, max_tokens).layers if layer.rows is not None]
        rings = [layer for layer in plain if layer.rows != max_context]
        if not rings:
            return (max_context, max_context) if plain else None
        return max((layer.window or 1) - 1 for layer in rings), min(layer.rows or 0 for layer in rings)

    def cache_bytes(self, max_context: int) -> int:
        """Return the bytes of the KV caches of one sequence, as f32. The engine keeps every position of attention."""
        cached = [
            number
            for number, layer in enumerate(self.layers)
            if not layer.taps and layer.delta is None and layer.shares is None
        ]
        widths = sum(self.head_width(number) for number in cached)
        return max_context * self.n_kv_heads * widths * 2 * 4  # keys and values

    @property
    def has_recurrent_state(self) -> bool:
        """Return whether layers keep a state of the last token only, instead of a row for each token."""
        return any(layer.taps or layer.delta is not None for layer in self.layers)

    def check(self, where: str) -> None:
        """Check that sizes are within limits, that heads share keys evenly, and that they rotate in pairs."""
        deltas = [layer.delta for layer in self.layers if layer.delta is not None]
        products = {
            "vocab_size": self.vocab_size,
            "the width of the feed-forward": max(map(self.hidden_width, range(self.n_layers))),
            "heads times their width": self.n_heads * max(map(self.head_width, range(self.n_layers))),
            "the embeddings of layers": self.n_layers * self.per_layer_dim,
            "the size of a convolution": max((layer.taps for layer in self.layers), default=0) * self.dim,
            "a state of linear attention": max((d.value_heads * d.key_dim * d.value_dim for d in deltas), default=0),
            "the convolution of linear attention": max(
                (d.taps * (d.key_heads * d.key_dim * 2 + d.value_heads * d.value_dim) for d in deltas), default=0
            ),
        }
        for name, size in products.items():
            if size > MAX_ELEMENTS:
                raise UnsupportedError(
                    argument=f"{where}: {name}", expected=f"at most {MAX_ELEMENTS}", got=size, code="size"
                )
        for experts in {layer.experts for layer in self.layers if layer.experts is not None}:
            experts.check(where)
        if self.n_heads % self.n_kv_heads:
            raise FormatError(
                argument=f"{where}: attention heads",
                expected=f"a multiple of the {self.n_kv_heads} key and value heads",
                got=self.n_heads,
                code="head_count",
            )
        for name, rope in self.ropes.items():
            width = self._rotated_width(name)
            if width % 2 or rope.width % 2 or rope.width > width:
                raise UnsupportedError(
                    argument=f"{where}: head_dim and rotary width",
                    expected="even numbers, the second at most the first",
                    got=f"{width} and {rope.width}",
                    code="odd_width",
                )
        for name, rope in self.ropes.items():
            for divisors in (rope.divisors, rope.long_divisors):
                if divisors is not None and len(divisors) != rope.width // 2:
                    raise FormatError(
                        argument=f"{where}: {name}",
                        expected=f"{rope.width // 2} factors of frequencies",
                        got=len(divisors),
                        code="factor_count",
                    )
