"""tinygrad on WebGPU, through Dawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import pydawn.webgpu

from ..models import Cache, Ops, forward
from ..problems import Array, Problem
from ..protocol import Prepared, RefusedError, serve
from ..reference import GROUP, rotation

# Read by tinygrad when it is imported.
os.environ.setdefault("DEV", "WEBGPU")
os.environ.setdefault("WEBGPU_PATH", str(pydawn.webgpu.dll_path))

from tinygrad import Device, Tensor, TinyJit, dtypes

KINDS = ("add", "linear", "q4_linear", "mlp", "chain", "minilm", "llama")


class Tinygrad:
    def __init__(self) -> None:
        if Device.DEFAULT != "WEBGPU":
            raise RefusedError(f"it fell back to {Device.DEFAULT}")
        self.about = {"version": version("tinygrad"), "dawn-python": version("dawn-python")}

    def prepare(self, row: str, problem: Problem) -> Prepared:
        if problem.kind not in KINDS:
            raise RefusedError("a unit of the bare engine only")
        if row.startswith("smollm2"):
            raise RefusedError("thousands of kernels of 1 to 3.5 ms each: many seconds a token")
        ops = TinygradOps(problem.weights)

        compiled = TinyJit(lambda **inputs: forward(ops, problem, inputs).realize())
        operands = {name: as_given(array) for name, array in problem.inputs.items() if name != "prompt"}

        def run() -> list[Array]:
            return [compiled(**{name: Tensor(array).realize() for name, array in operands.items()}).numpy()]

        run()  # compiles; the next call, whose result is checked, records; those after it replay
        return Prepared(run)


def as_given(array: Array) -> Array:
    return array.astype(np.int32) if array.dtype == np.int64 else array  # WebGPU has no 64-bit integers


class TinygradOps(Ops):
    """Constants are put on the device once."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        super().__init__(weights)
        self._tensors: dict[str, Any] = {}

    def tensor(self, name: str, array: Array) -> Any:
        if name not in self._tensors:
            self._tensors[name] = Tensor(np.ascontiguousarray(array)).realize()
        return self._tensors[name]

    def constant(self, name: str) -> Any:
        return self.tensor(name, self.weights[name])

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def mul(self, x: Any, y: Any) -> Any:
        return x * y

    def cut(self, x: Any) -> Any:
        """A long chain becomes one expression, and Dawn's parser refuses it if it is too deep."""
        return x.contiguous()

    def relu(self, x: Any) -> Any:
        return x.relu()

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + (x * 2**-0.5).erf())

    def silu(self, x: Any) -> Any:
        return x.silu()

    def embedding(self, ids: Any, name: str) -> Any:
        return self.constant(name)[ids.flatten()]

    def linear(self, x: Any, name: str) -> Any:
        if self.has(f"{name}codes"):
            return x @ self._dequantized(name).T
        y = x @ self.constant(f"{name}weight").T
        return y + self.constant(f"{name}bias") if self.has(f"{name}bias") else y

    def _dequantized(self, name: str) -> Any:
        """Codes stay packed, eight to a word: they become numbers inside the kernel that uses them."""
        N, K = self.weights[f"{name}codes"].shape
        codes = self.weights[f"{name}codes"]
        words = (codes[:, 0::2] | (codes[:, 1::2] << 4)).view(np.uint32)  # (N, K / 8)
        packed = self.tensor(f"{name}packed", words)
        shifted = [(packed // (1 << 4 * i)) % 16 for i in range(8)]
        numbers = Tensor.stack(*shifted, dim=2).reshape(N, K // GROUP, GROUP).cast(dtypes.float32) - 8
        return (numbers * self.constant(f"{name}scales").unsqueeze(2)).reshape(N, K)

    def layer_norm(self, x: Any, name: str, eps: float) -> Any:
        return x.layernorm(eps=eps) * self.constant(f"{name}weight") + self.constant(f"{name}bias")

    def rms_norm(self, x: Any, name: str, eps: float) -> Any:
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * self.constant(f"{name}weight")

    def attention(self, q: Any, k: Any, v: Any, mask: Any, batch: int, heads: int) -> Any:
        q, k, v = (x.reshape(batch, -1, heads, x.shape[1] // heads).transpose(1, 2) for x in (q, k, v))
        kept = (mask != 0).reshape(batch, 1, 1, -1)
        mixed = q.scaled_dot_product_attention(k, v, attn_mask=kept.where(0.0, -1e30))  # (B, H, T, D)
        return mixed.transpose(1, 2).reshape(-1, heads * q.shape[-1])

    def cached_attention(self, q: Any, k: Any, v: Any, layer: int, cache: Cache) -> Any:
        tables = rotation(cache.past, cache.tokens, cache.width, cache.theta)
        cos, sin = (self.tensor(n, x).unsqueeze(1) for n, x in zip(("cos", "sin"), tables, strict=True))

        def turned(x: Any, heads: int) -> Any:
            pairs = x.reshape(cache.tokens, heads, cache.width // 2, 2)
            even, odd = pairs[..., 0], pairs[..., 1]
            return Tensor.stack(even * cos - odd * sin, even * sin + odd * cos, dim=3).reshape(cache.tokens, heads, -1)

        q, k = turned(q, cache.heads), turned(k, cache.kv_heads)
        v = v.reshape(cache.tokens, cache.kv_heads, cache.width)
        if cache.past:
            k, v = cache.keys[layer].cat(k), cache.values[layer].cat(v)
        k, v = (x.repeat_interleave(cache.heads // cache.kv_heads, 1).transpose(0, 1) for x in (k, v))  # (H, P + T, D)
        total = cache.past + cache.tokens
        ahead = np.arange(total)[None] > cache.past + np.arange(cache.tokens)[:, None]
        bias = self.tensor("ahead", np.float32(-1e30) * ahead)
        mixed = q.transpose(0, 1).scaled_dot_product_attention(k, v, attn_mask=bias)  # (H, T, D)
        return mixed.transpose(0, 1).reshape(cache.tokens, -1)

    def mean(self, x: Any, mask: Any, batch: int) -> Any:
        kept = mask.cast(dtypes.float32).unsqueeze(2)
        means = (x.reshape(batch, -1, x.shape[1]) * kept).sum(1) / kept.sum(1)
        return means / means.square().sum(1, keepdim=True).sqrt()

    def last(self, x: Any) -> Any:
        return x[-1:]


if __name__ == "__main__":
    serve(Tinygrad)
