"""The rows' models, each written once, against the few operations that every contender has.

Activations are 2-D throughout: (rows, columns), a batch of sentences as (B * T, C).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .problems import Array, Problem


@dataclass(frozen=True)
class Cache:
    """Attention of a decoder: where it stands, and the keys and values (layers, P, KV, D) that were computed before."""

    keys: Any
    values: Any
    past: int
    tokens: int
    heads: int
    kv_heads: int
    width: int
    theta: float


class Ops(ABC):
    """What a model is written in. Names are those of the problem's weights."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights

    @abstractmethod
    def constant(self, name: str) -> Any: ...

    @abstractmethod
    def add(self, x: Any, y: Any) -> Any: ...

    @abstractmethod
    def mul(self, x: Any, y: Any) -> Any: ...

    @abstractmethod
    def relu(self, x: Any) -> Any: ...

    @abstractmethod
    def gelu(self, x: Any) -> Any: ...

    @abstractmethod
    def silu(self, x: Any) -> Any: ...

    @abstractmethod
    def embedding(self, ids: Any, name: str) -> Any: ...

    @abstractmethod
    def linear(self, x: Any, name: str) -> Any:
        """x W^T + b; `name.weight` and perhaps `name.bias`, or 4-bit `name.codes` and `name.scales`."""

    @abstractmethod
    def layer_norm(self, x: Any, name: str, eps: float) -> Any: ...

    @abstractmethod
    def rms_norm(self, x: Any, name: str, eps: float) -> Any: ...

    @abstractmethod
    def attention(self, q: Any, k: Any, v: Any, mask: Any, batch: int, heads: int) -> Any:
        """All tokens of a sentence see all that its mask (B, T) keeps."""

    @abstractmethod
    def cached_attention(self, q: Any, k: Any, v: Any, layer: int, cache: Cache) -> Any:
        """Rotates q and k (pairs of neighbours), and attends to the past and to what is not ahead."""

    @abstractmethod
    def mean(self, x: Any, mask: Any, batch: int) -> Any:
        """Of the tokens (B, T) that the mask keeps, made of length 1: (B, C)."""

    @abstractmethod
    def last(self, x: Any) -> Any:
        """The last row, as (1, C)."""

    def cut(self, x: Any) -> Any:
        """x itself: a place to stop for those who would make one kernel of more than they can compile."""
        return x

    def has(self, name: str) -> bool:
        return name in self.weights


def forward(ops: Ops, problem: Problem, inputs: Mapping[str, Any]) -> Any:
    """The output of a problem's model; `inputs` are the problem's, in the contender's own type."""
    match problem.kind:
        case "add":
            return ops.add(inputs["a"], inputs["b"])
        case "linear" | "q4_linear":
            return ops.linear(inputs["x"], "")
        case "mlp":
            return mlp(ops, inputs["x"], problem.size("blocks"))
        case "chain":
            return chain(ops, inputs["x"], problem.size("length"))
        case "minilm":
            return minilm(ops, inputs["ids"], inputs["mask"], problem)
        case "llama":
            return llama(ops, inputs, problem)
    raise ValueError(f"there is no model of kind {problem.kind}")


def chain(ops: Ops, x: Any, length: int) -> Any:
    a, b = ops.constant("a"), ops.constant("b")
    for i in range(1, length // 2 + 1):
        x = ops.mul(ops.add(x, a), b)
        if i % 16 == 0:
            x = ops.cut(x)
    return x


def mlp(ops: Ops, x: Any, blocks: int) -> Any:
    for i in range(blocks):
        x = ops.linear(ops.relu(ops.linear(x, f"{i}.up.")), f"{i}.down.")  # (M, 256) -> (M, 1024) -> (M, 256)
    return x


def minilm(ops: Ops, ids: Any, mask: Any, problem: Problem) -> Any:
    batch, heads = problem.size("batch"), problem.size("heads")
    words = ops.embedding(ids, "words.weight")  # (B * T, C)
    x = ops.layer_norm(ops.add(words, ops.constant("places")), "embedded.", 1e-12)
    for i in range(problem.size("layers")):
        q, k, v = (ops.linear(x, f"{i}.{part}.") for part in "qkv")
        x = ops.add(x, ops.linear(ops.attention(q, k, v, mask, batch, heads), f"{i}.out."))
        x = ops.layer_norm(x, f"{i}.attended.", 1e-12)
        x = ops.add(x, ops.linear(ops.gelu(ops.linear(x, f"{i}.up.")), f"{i}.down."))
        x = ops.layer_norm(x, f"{i}.done.", 1e-12)
    return ops.mean(x, mask, batch)


def llama(ops: Ops, inputs: Mapping[str, Any], problem: Problem) -> Any:
    """Logits behind the last token."""
    sizes, eps = problem.sizes, float(problem.sizes["eps"])
    cache = Cache(
        inputs.get("keys"),
        inputs.get("values"),
        problem.size("past"),
        problem.size("tokens"),
        problem.size("heads"),
        problem.size("kv_heads"),
        problem.size("width"),
        float(sizes["theta"]),
    )
    x = ops.embedding(inputs["ids"], "words.weight")  # (T, C)
    for i in range(problem.size("layers")):
        h = ops.rms_norm(x, f"{i}.attend.", eps)
        q, k, v = (ops.linear(h, f"{i}.{part}.") for part in "qkv")
        x = ops.add(x, ops.linear(ops.cached_attention(q, k, v, i, cache), f"{i}.o."))
        h = ops.rms_norm(x, f"{i}.feed.", eps)
        h = ops.mul(ops.silu(ops.linear(h, f"{i}.gate.")), ops.linear(h, f"{i}.up."))
        x = ops.add(x, ops.linear(h, f"{i}.down."))
    return ops.linear(ops.rms_norm(ops.last(x), "final.", eps), "head.")
