"""Attention of one token over a cache, for all layers of a model in one submit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..problems import Problem
from .engine import Commands, Dispatch, Engine
from .templates import wgsl
from .variants import Variant, recorded


def attention(engine: Engine, problem: Problem) -> list[Variant]:
    q, k = problem.inputs["q"], problem.weights["k"]
    (heads, width), (rows, kv_heads, _) = q.shape, k.shape
    sizes = {"H": heads, "KV": kv_heads, "D": width, "C": rows}
    layers = problem.size("layers")
    # Every layer has caches of its own, as in a model: they do not all fit the processor's caches.
    caches = [[engine.buffer(np.array(problem.weights[name])) for name in "kv"] for _ in range(layers)]
    query, result = engine.buffer(q.nbytes), engine.buffer(q.nbytes)
    context = np.array([problem.size("context")], np.uint32)
    bound = engine.buffer(context)
    kernels = [_split(engine, sizes, kind, n) for kind, n in SPLITS] + [_scores(engine, sizes, n) for n in (32, 64)]
    variants = []
    for name, rows_of in kernels:
        recording = [row for k, v in caches for row in rows_of(query, k, v, bound, result)]
        commands = Commands(recording, [(query, q), (bound, context)], [(result, q.nbytes)])
        variants.append(recorded(engine, name, commands))
    return variants


SPLITS = [("part", 8), ("part", 16), ("group", 2), ("group", 4), ("group", 8), ("group", 16)]


def _split(engine: Engine, sizes: dict[str, int], kind: str, splits: int) -> tuple[str, Any]:
    """Pieces of the context, each with a running softmax, and a second kernel that puts them together."""
    H, KV, D = sizes["H"], sizes["KV"], sizes["D"]
    first = engine.pipeline(wgsl(f"attention_{kind}", splits=splits, **sizes))
    merge = engine.pipeline(wgsl("attention_merge", splits=splits, **sizes))
    parts = engine.buffer(H * splits * (D + 4) * 4)
    grid = -(-H * splits // 8) if kind == "part" else KV * splits

    def rows(q: Any, k: Any, v: Any, context: Any, y: Any) -> list[Dispatch]:
        return [
            engine.dispatch(first, [q, k, v, context, parts], (grid,)),
            engine.dispatch(merge, [parts, y], (-(-H * D // 32),)),
        ]

    return f"{splits} splits, {'a head each' if kind == 'part' else 'heads that share keys together'}", rows


def _scores(engine: Engine, sizes: dict[str, int], stride: int) -> tuple[str, Any]:
    """Return all scores first, then the softmax and the sum over values."""
    H, KV, D, C = sizes["H"], sizes["KV"], sizes["D"], sizes["C"]
    first = engine.pipeline(wgsl("attention_scores", stride=stride, **sizes))
    second = engine.pipeline(wgsl("attention_values", **sizes))
    scores = engine.buffer(H * C * 4)

    def rows(q: Any, k: Any, v: Any, context: Any, y: Any) -> list[Dispatch]:
        return [
            engine.dispatch(first, [q, k, context, scores], (KV * stride // 8,)),
            engine.dispatch(second, [scores, v, context, y], (-(-H * D // 32),)),
        ]

    return f"scores, then values, stride {stride}", rows
