"""Rewrite the graph of a language model: append the sampler, store KV caches as f16, check how caches are indexed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ..errors import UnsupportedError
from ..graph import (
    ITEM,
    ROTARY_ATTENTION,
    SAMPLE,
    Call,
    DType,
    Graph,
    Int,
    Origin,
    Step,
    SymInt,
    TensorSpec,
    Value,
)
from .rewriter import roles

LOGITS, TOKEN, LOGPROB, TOP_TOKENS, TOP_LOGPROBS = range(5)  # positions of the outputs
SAMPLING_WORDS = ("temperature", "top_k", "top_p", "min_p", "seed", "step", "mask", "unused")  # of each row
FEATURE_ADJUSTMENTS, FEATURE_TOP_LOGPROBS = 1, 2  # bits of the features of `webpte.sample`
MAX_TOP_LOGPROBS = 20
MAX_LOGIT_ADJUSTMENTS = 3072  # per row: with masks, those of 32 rows are 2 MB for a vocabulary of 128,256 tokens

PATTERN = {
    "select": ("aten.select_copy.int",),
    # These read and write caches whose row p is position p, if the position is the model's input. Other calls may
    # store state in another way.
    "attention": ("sdpa_with_kv_cache.default", "custom_sdpa.default", "update_cache.default", ROTARY_ATTENTION),
    "position": ("et_vk.select_as_symint.default", ITEM, "aten.view_copy.default"),
}
ROLES = roles(PATTERN)
SELECT = PATTERN["select"][0]
ATTENTION = PATTERN["attention"][0]
CACHE_ARGUMENTS = (3, 4)  # positions among the arguments of ATTENTION


class Sampler(NamedTuple):
    """Values of a sampler behind a graph."""

    inputs: tuple[int, ...]  # what choice.pack gives, in its order
    outputs: tuple[int, ...]  # what choice.unpack takes


def add_value(values: list[Value], value: Value) -> int:
    """Its id."""
    values.append(value)
    return len(values) - 1


def append_sampler(values: list[Value], steps: list[Step], logits: int, advance: int, origin: Origin) -> Sampler:
    """Choose a token for each row of logits (P, V), `advance` (SymInt) steps behind the one each row's settings say."""
    spec = values[logits]
    assert isinstance(spec, TensorSpec)
    rows, vocabulary = spec.dims

    add = functools.partial(add_value, values)
    most = rows * len(SAMPLING_WORDS) + padded_words(
        rows * (4 * min(MAX_LOGIT_ADJUSTMENTS, vocabulary) + mask_words(vocabulary))
    )
    choices = add(TensorSpec(DType.INT32, (most,), DType.INT32, dynamic=True))
    edits, features = add(SymInt()), add(SymInt())
    shapes = (rows,), (rows,), (rows, MAX_TOP_LOGPROBS), (rows, MAX_TOP_LOGPROBS)
    kinds = DType.INT32, DType.FLOAT32, DType.INT32, DType.FLOAT32
    found = tuple(add(TensorSpec(kind, dims, kind)) for kind, dims in zip(kinds, shapes, strict=True))
    steps.append(Call(SAMPLE, (logits, choices, advance, edits, features), found, origin))
    return Sampler((choices, edits, features), found)


def mask_words(vocabulary: int) -> int:
    """Words of a mask, in which each token has a bit."""
    return -(-vocabulary // 32)


def padded_words(words: int) -> int:
    """How many words to pass for so many of edits and masks: few sizes, for each has a schedule of its own."""
    return max(1024, 1 << (words - 1).bit_length()) if words else 0


def with_sampler(graph: Graph) -> Graph:
    """Outputs become the last logits and the sampler's; behind the model's own inputs stand `advance` and the
    sampler's."""
    values: list[Value] = list(graph.values)
    steps = list(graph.steps)
    origin = Origin(steps[-1].origin.instruction if steps else 0)

    add = functools.partial(add_value, values)
    logits = graph.outputs[0]
    spec = values[logits]
    if not isinstance(spec, TensorSpec) or len(spec.dims) not in (2, 3) or spec.dims[0] != 1:
        raise UnsupportedError(f"{graph.name} returns {spec}; a language model returns logits of one sequence")
    last = logits
    if len(spec.dims) == 3:  # (1, S, V): the last position's
        last = add(TensorSpec(spec.dtype, (1, spec.dims[2]), spec.host_dtype))
        steps.append(Call(SELECT, (logits, add(Int(1)), add(Int(-1))), (last,), origin))
    advance = add(SymInt())
    sampler = append_sampler(values, steps, last, advance, origin)
    return replace(
        graph,
        values=tuple(values),
        steps=tuple(steps),
        inputs=(*graph.inputs, advance, *sampler.inputs),
        outputs=(last, *sampler.outputs),
    )


# -- caches ------------------------------------------------------------------------------------------------------------


def with_half_caches(graph: Graph) -> Graph:
    """Store keys and values as f16; attention still accumulates in f32. Devices without f16 save nothing."""
    calls = [call for call in graph.calls if call.name == ATTENTION]
    caches = {call.args[position] for call in calls for position in CACHE_ARGUMENTS}
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
    while (call := makers.get(value_id)) is not None and ROLES.get(call.name) in ("position", "select"):
        value_id = call.args[0]
    return value_id in graph.inputs
