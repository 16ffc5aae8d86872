"""The models in NumPy: what every contender's result is compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .models import Cache, Ops
from .problems import Array

GROUP = 32


def dequantized(codes: Array, scales: Array) -> Array:
    """(N, K) codes of 0 to 15 and (N, K / 32) scales to (N, K) weights."""
    N, K = codes.shape
    grouped = codes.reshape(N, K // GROUP, GROUP).astype(np.float32) - 8
    return (grouped * scales[:, :, None]).reshape(N, K)


def rotation(start: int, count: int, width: int, theta: float) -> tuple[Array, Array]:
    """cos and sin (T, D / 2) of the angles by which pairs of neighbours are turned."""
    speeds = theta ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    angles = np.arange(start, start + count)[:, None] * speeds
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """x is (T, H, D); cos and sin (T, D / 2)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


def softmax(x: Array) -> Array:
    exponents = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(exponents / exponents.sum(-1, keepdims=True))


class Reference(Ops):
    """Also keeps each layer's keys and values, for those who start behind them."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        super().__init__(weights)
        self.keys: list[Array] = []
        self.values: list[Array] = []

    def constant(self, name: str) -> Array:
        return self.weights[name]

    def add(self, x: Array, y: Array) -> Array:
        return np.asarray(x + y)

    def mul(self, x: Array, y: Array) -> Array:
        return np.asarray(x * y)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def gelu(self, x: Array) -> Array:
        return np.asarray(0.5 * x * (1 + _erf(x / np.float32(np.sqrt(2)))))

    def silu(self, x: Array) -> Array:
        return np.asarray(x / (1 + np.exp(-x)))

    def embedding(self, ids: Array, name: str) -> Array:
        return np.asarray(self.weights[name][ids.ravel()])

    def linear(self, x: Array, name: str) -> Array:
        if self.has(f"{name}codes"):
            return np.asarray(x @ dequantized(self.weights[f"{name}codes"], self.weights[f"{name}scales"]).T)
        y = x @ self.weights[f"{name}weight"].T
        return np.asarray(y + self.weights[f"{name}bias"] if self.has(f"{name}bias") else y)

    def layer_norm(self, x: Array, name: str, eps: float) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
        return np.asarray(scaled * self.weights[f"{name}weight"] + self.weights[f"{name}bias"])

    def rms_norm(self, x: Array, name: str, eps: float) -> Array:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.weights[f"{name}weight"])

    def attention(self, q: Array, k: Array, v: Array, mask: Array, batch: int, heads: int) -> Array:
        q, k, v = (x.reshape(batch, -1, heads, x.shape[1] // heads).transpose(0, 2, 1, 3) for x in (q, k, v))
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(q.shape[-1]))  # (B, H, T, T)
        scores = np.where(mask[:, None, None, :] != 0, scores, np.float32(-1e30))
        merged = (softmax(scores) @ v).transpose(0, 2, 1, 3)  # (B, T, H, D)
        return merged.reshape(-1, merged.shape[2] * merged.shape[3])

    def cached_attention(self, q: Array, k: Array, v: Array, layer: int, cache: Cache) -> Array:
        turn = rotation(cache.past, cache.tokens, cache.width, cache.theta)
        q = rotated(q.reshape(cache.tokens, cache.heads, cache.width), *turn)
        k = rotated(k.reshape(cache.tokens, cache.kv_heads, cache.width), *turn)
        v = v.reshape(cache.tokens, cache.kv_heads, cache.width)
        self.keys.append(k)
        self.values.append(v)
        if cache.past:
            k, v = np.concatenate([cache.keys[layer], k]), np.concatenate([cache.values[layer], v])
        k, v = (np.repeat(x, cache.heads // cache.kv_heads, 1) for x in (k, v))  # (P + T, H, D)
        scores = np.einsum("thd,phd->htp", q, k, optimize=True) / np.float32(np.sqrt(cache.width))
        ahead = np.arange(len(k))[None] > cache.past + np.arange(cache.tokens)[:, None]
        weights = softmax(np.where(ahead, np.float32(-1e30), scores))
        return np.asarray(np.einsum("htp,phd->thd", weights, v, optimize=True)).reshape(cache.tokens, -1)

    def mean(self, x: Array, mask: Array, batch: int) -> Array:
        kept = mask.astype(np.float32)[:, :, None]
        means = (x.reshape(batch, -1, x.shape[1]) * kept).sum(1) / kept.sum(1)
        return np.asarray(means / np.sqrt((means * means).sum(1, keepdims=True)))

    def last(self, x: Array) -> Array:
        return x[-1:]


_erf = np.vectorize(math.erf, otypes=[np.float32])
