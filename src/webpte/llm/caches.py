"""KV caches in half the memory."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnsupportedError
from ..graph import DType, Graph, TensorSpec
from .sampled import with_sampler

ATTENTION = "sdpa_with_kv_cache.default"
CACHES = (3, 4)  # positions among its arguments


def with_half_caches(graph: Graph) -> Graph:
    """Store keys and values as f16; attention still accumulates in f32. Devices without f16 save nothing."""
    calls = [call for call in graph.calls if call.name == ATTENTION]
    caches = {call.args[position] for call in calls for position in CACHES}
    others = {v for call in graph.calls if call.name != ATTENTION for v in (*graph.flatten(call.args), *call.outs)}
    kept = [v for v in caches if isinstance(spec := graph.values[v], TensorSpec) and spec.constant is not None]
    if not kept or len(kept) != len(caches) or caches & others:
        raise UnsupportedError(
            f"{graph.name} has no KV caches of its own that only attention uses; they stay f32", code="no_kv_cache"
        )
    values = list(graph.values)
    for value_id in kept:
        values[value_id] = replace(graph.tensor(value_id), dtype=DType.FLOAT16)
    return replace(graph, values=tuple(values))


def with_sampler_and_half_caches(graph: Graph) -> Graph:
    return with_sampler(with_half_caches(graph))
