"""KV caches of a graph: stored as f16, and whether a position can be found in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import UnsupportedError
from ..graph import ITEM, ROTARY_ATTENTION, Call, DType, Graph, SymInt, TensorSpec
from .pattern import roles
from .sampler import with_sampler

CACHES = (3, 4)  # positions among its arguments
# Calls that read and write caches whose row p is position p, if the position is the one that the model is given. Other
# calls may store state in another way.
PATTERN = {
    "attention": ("sdpa_with_kv_cache.default", "custom_sdpa.default", "update_cache.default", ROTARY_ATTENTION),
    "position": ("et_vk.select_as_symint.default", ITEM, "aten.select_copy.int", "aten.view_copy.default"),
}
ROLES = roles(PATTERN)
ATTENTION = PATTERN["attention"][0]


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


def keeps_every_position(graph: Graph, state: frozenset[int]) -> bool:
    """Whether all state is caches that hold each position in its own row."""
    users = [call for call in graph.calls if not state.isdisjoint([*graph.flatten(call.args), *call.outs])]
    makers = {out: call for call in graph.calls for out in call.outs}
    return all(ROLES.get(call.name) == "attention" for call in users) and all(
        _is_input(graph, makers, value_id)
        for call in users
        for value_id in call.args
        if isinstance(graph.values[value_id], SymInt)
    )


def _is_input(graph: Graph, makers: Mapping[int, Call], value_id: int) -> bool:
    """Whether an integer is an input of the graph, and not computed from one."""
    while (call := makers.get(value_id)) is not None and ROLES.get(call.name) == "position":
        value_id = call.args[0]
    return value_id in graph.inputs
