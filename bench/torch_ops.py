"""The models as torch modules: what ExecuTorch exports for webpte, and what LiteRT's converter takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from .models import Cache, Ops, forward
from .problems import Array, Problem
from .reference import dequantized, rotation


class Functional(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    """A problem's model, with its inputs in the problem's order."""

    def __init__(self, problem: Problem, ops: type[TorchOps] | None = None) -> None:
        super().__init__()
        self.problem = problem
        self.names = [name for name in problem.inputs if name != "prompt"]
        self.ops = (ops or TorchOps)(problem.weights)
        with torch.no_grad():
            self(*self.example())  # makes all constants, which cannot be done while it is traced

    def example(self) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(np.array(self.problem.inputs[name])) for name in self.names)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return forward(self.ops, self.problem, dict(zip(self.names, inputs, strict=True)))


class TorchOps(Ops):
    """Constants are tensors that tracing lifts into the program; 4-bit weights are read out into f32."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        super().__init__(weights)
        self._tensors: dict[str, torch.Tensor] = {}

    def tensor(self, name: str, make: Callable[[], Array]) -> torch.Tensor:
        if name not in self._tensors:
            self._tensors[name] = torch.from_numpy(np.array(make()))
        return self._tensors[name]

    def constant(self, name: str) -> torch.Tensor:
        return self.tensor(name, lambda: self.weights[name])

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mul(self, x: Any, y: Any) -> Any:
        return x * y

    def relu(self, x: Any) -> Any:
        return functional.relu(x)

    def gelu(self, x: Any) -> Any:
        return functional.gelu(x)

    def silu(self, x: Any) -> Any:
        return functional.silu(x)

    def embedding(self, ids: Any, name: str) -> Any:
        return functional.embedding(ids.reshape(-1), self.constant(name))

    def linear(self, x: Any, name: str) -> Any:
        if not self.has(f"{name}codes"):
            bias = self.constant(f"{name}bias") if self.has(f"{name}bias") else None
            return functional.linear(x, self.constant(f"{name}weight"), bias)
        codes, scales = self.weights[f"{name}codes"], self.weights[f"{name}scales"]
        return functional.linear(x, self.tensor(f"{name}read", lambda: dequantized(codes, scales)))

    def layer_norm(self, x: Any, name: str, eps: float) -> Any:
        weight, bias = self.constant(f"{name}weight"), self.constant(f"{name}bias")
        return functional.layer_norm(x, weight.shape, weight, bias, eps)

    def rms_norm(self, x: Any, name: str, eps: float) -> Any:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * self.constant(f"{name}weight")

    def attention(self, q: Any, k: Any, v: Any, mask: Any, batch: int, heads: int) -> Any:
        columns = q.shape[-1]
        q, k, v = (x.reshape(batch, -1, heads, columns // heads).transpose(1, 2) for x in (q, k, v))
        bias = (1 - mask.to(torch.float32)).reshape(batch, 1, 1, -1) * -1e30
        weights = torch.softmax(q @ k.transpose(2, 3) * (columns // heads) ** -0.5 + bias, -1)  # (B, H, T, T)
        return (weights @ v).transpose(1, 2).reshape(-1, columns)

    def cached_attention(self, q: Any, k: Any, v: Any, layer: int, cache: Cache) -> Any:
        tables = rotation(cache.past, cache.tokens, cache.width, cache.theta)

        def turned(x: Any, heads: int) -> Any:
            # A leading 1, and tables for every head: LiteRT's GPU path takes the first dim for a batch, and errs.
            cos = self.tensor(f"cos{heads}", lambda: np.tile(tables[0], (1, heads))[None])
            sin = self.tensor(f"sin{heads}", lambda: np.tile(tables[1], (1, heads))[None])
            pairs = x.reshape(1, cache.tokens, heads * cache.width // 2, 2)
            even, odd = pairs[..., 0], pairs[..., 1]
            mixed = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
            return mixed.reshape(cache.tokens, heads, cache.width)

        q, k = turned(q, cache.heads), turned(k, cache.kv_heads)
        v = v.reshape(cache.tokens, cache.kv_heads, cache.width)
        if cache.past:
            k, v = torch.cat([cache.keys[layer], k]), torch.cat([cache.values[layer], v])
        shared, total = cache.heads // cache.kv_heads, cache.past + cache.tokens
        k, v = k.transpose(0, 1), v.transpose(0, 1)  # (KV, P + T, D)
        # Heads that share keys are rows of one matrix: broadcasting is not for everyone.
        grouped = q.transpose(0, 1).reshape(cache.kv_heads, shared * cache.tokens, cache.width)
        ahead = np.arange(total)[None] > cache.past + np.arange(cache.tokens)[:, None]
        bias = self.tensor("ahead", lambda: np.tile(np.float32(-1e30) * ahead, (cache.kv_heads, shared, 1)))
        weights = torch.softmax(grouped @ k.transpose(1, 2) * cache.width**-0.5 + bias, -1)  # (KV, G * T, P + T)
        return (weights @ v).reshape(cache.heads, cache.tokens, -1).transpose(0, 1).reshape(cache.tokens, -1)

    def mean(self, x: Any, mask: Any, batch: int) -> Any:
        kept = mask.to(torch.float32).unsqueeze(2)
        means = (x.reshape(batch, -1, x.shape[-1]) * kept).sum(1) / kept.sum(1)
        # Not a quotient: LiteRT's converter would find a normalization in it that its GPU path does not have.
        return means * torch.rsqrt((means * means).sum(1, keepdim=True))

    def last(self, x: Any) -> Any:
        return x[-1:]
