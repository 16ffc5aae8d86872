"""Rewrite the graph of a language model: append the sampler, store KV caches as f16, check how caches are indexed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ..errors import UnsupportedError
from ..graph import Call, DType, Graph, Int, Origin, Step, SymInt, TensorSpec, Value
from ..graph.names import ITEM
from .attention import ROTARY_ATTENTION
from .decompositions import recompose
from .rewriter import role_of, roles

LOGITS, TOKEN, LOGPROB, TOP_TOKENS, TOP_LOGPROBS = range(5)  # positions of the outputs
SAMPLING_WORDS = ("temperature", "top_k", "top_p", "min_p", "seed", "step", "mask", "unused")  # of each row
FEATURE_ADJUSTMENTS, FEATURE_TOP_LOGPROBS = 1, 2  # bits of the features of `webpte.sample`
MAX_TOP_LOGPROBS = 20
MAX_LOGIT_ADJUSTMENTS = 3072  # per row: with masks, those of 32 rows are 2 MB for a vocabulary of 128,256 tokens

SAMPLE = "webpte.sample"  # the next token of each row of logits: see ops/sampling/
PATTERN = {
    "select": ("aten.select_copy.int",),
    # These read and write caches whose row p is position p, if the position is the model's input. Other calls may
    # store state in another way.
    "attention": (
        "sdpa_with_kv_cache.default",
        "custom_sdpa.default",
        "custom_quantized_sdpa.default",
        "update_cache.default",
        ROTARY_ATTENTION,
    ),
    "position": ("et_vk.select_as_symint.default", ITEM, "aten.view_copy.default"),
}
ROLES = roles(PATTERN)
SELECT = PATTERN["select"][0]
ATTENTION = PATTERN["attention"][0]
CACHE_ARGUMENTS = (3, 4)  # positions among the arguments of ATTENTION


class Sampler(NamedTuple):
    """The value ids of a sampler."""

    inputs: tuple[int, ...]  # in the order of `llm.sampling.pack`
    outputs: tuple[int, ...]  # in the order of `llm.sampling.unpack`


def add_value(values: list[Value], value: Value) -> int:
    """Append a value, and return its id."""
    values.append(value)
    return len(values) - 1


def append_sampler(values: list[Value], steps: list[Step], logits: int, offset: int, origin: Origin) -> Sampler:
    """Append the call that samples a token for each row of logits (P, V). `offset` is added to each row's step."""
    spec = values[logits]
    assert isinstance(spec, TensorSpec)
    rows, vocabulary = spec.dims

    add = functools.partial(add_value, values)
    max_words = rows * len(SAMPLING_WORDS) + padded_words(
        rows * (4 * min(MAX_LOGIT_ADJUSTMENTS, vocabulary) + mask_words(vocabulary))
    )
    choices = add(TensorSpec(DType.INT32, (max_words,), DType.INT32, dynamic=True))
    adjustments, features = add(SymInt()), add(SymInt())
    shapes = (rows,), (rows,), (rows, MAX_TOP_LOGPROBS), (rows, MAX_TOP_LOGPROBS)
    dtypes = DType.INT32, DType.FLOAT32, DType.INT32, DType.FLOAT32
    outputs = tuple(add(TensorSpec(dtype, dims, dtype)) for dtype, dims in zip(dtypes, shapes, strict=True))
    steps.append(Call(SAMPLE, (logits, choices, offset, adjustments, features), outputs, origin))
    return Sampler((choices, adjustments, features), outputs)


def mask_words(vocabulary: int) -> int:
    """Return the number of words of a mask with a bit for each token."""
    return -(-vocabulary // 32)


def padded_words(words: int) -> int:
    """Return the padded size of adjustments and masks. There are few sizes, since each has its own schedule."""
    return max(1024, 1 << (words - 1).bit_length()) if words else 0


def with_sampler(graph: Graph) -> Graph:
    """Append the sampler. The outputs become the last logits and the sampler's.

    The inputs are the model's, an offset of the sampler's step, and the sampler's."""
    values: list[Value] = list(graph.values)
    steps = list(graph.steps)
    origin = Origin(steps[-1].origin.instruction if steps else 0)

    add = functools.partial(add_value, values)
    logits = graph.outputs[0]
    spec = values[logits]
    if not isinstance(spec, TensorSpec) or len(spec.dims) not in (2, 3) or spec.dims[0] != 1:
        raise UnsupportedError(
            argument=graph.name, expected="logits of one sequence, (1, V) or (1, S, V)", got=spec, code="other_output"
        )
    last = logits
    if len(spec.dims) == 3:  # (1, S, V): the last position's
        last = add(TensorSpec(spec.dtype, (1, spec.dims[2]), spec.host_dtype))
        steps.append(Call(SELECT, (logits, add(Int(1)), add(Int(-1))), (last,), origin))
    offset = add(SymInt())
    sampler = append_sampler(values, steps, last, offset, origin)
    return replace(
        graph,
        values=tuple(values),
        steps=tuple(steps),
        inputs=(*graph.inputs, offset, *sampler.inputs),
        outputs=(last, *sampler.outputs),
    )


def with_stored_output(graph: Graph) -> Graph:
    """Make the only output a state, which stays on the device after a call."""
    (output,) = graph.outputs
    values = list(graph.values)
    values[output] = replace(graph.tensor(output), mutable=True)
    return replace(graph, values=tuple(values))


# -- caches ------------------------------------------------------------------------------------------------------------


def with_half_caches(graph: Graph) -> Graph:
    """Store keys and values as f16. Attention still accumulates in f32. Devices without f16 save no memory."""
    graph = recompose(graph)
    calls = [call for call in graph.calls if call.name == ATTENTION]
    caches = {call.args[position] for call in calls for position in CACHE_ARGUMENTS}
    others = {v for call in graph.calls if call.name != ATTENTION for v in (*graph.flatten(call.args), *call.outs)}
    owned = [v for v in caches if isinstance(spec := graph.values[v], TensorSpec) and spec.stored]
    if not owned or len(owned) != len(caches) or caches & others:
        raise UnsupportedError(
            f"{graph.name} has no KV caches that only attention uses, so they stay f32", code="no_kv_cache"
        )
    values = list(graph.values)
    for value_id in owned:
        values[value_id] = replace(graph.tensor(value_id), dtype=DType.FLOAT16)
    return replace(graph, values=tuple(values))


def with_sampler_and_half_caches(graph: Graph) -> Graph:
    """Apply `with_half_caches` and `with_sampler`."""
    return with_sampler(with_half_caches(graph))


def keeps_every_position(graph: Graph, state: frozenset[int]) -> bool:
    """Return whether all state is caches with a row for each position."""
    users = [call for call in graph.calls if not state.isdisjoint([*graph.flatten(call.args), *call.outs])]
    producers = {out: call for call in graph.calls for out in call.outs}
    return all(role_of(call, ROLES) == "attention" for call in users) and all(
        _is_input(graph, producers, value_id)
        for call in users
        for value_id in call.args
        if isinstance(graph.values[value_id], SymInt)
    )


def _is_input(graph: Graph, producers: Mapping[int, Call], value_id: int) -> bool:
    """Return whether an integer is an input of the graph, not computed from one."""
    while (call := producers.get(value_id)) is not None and role_of(call, ROLES) in ("position", "select"):
        value_id = call.args[0]
    return value_id in graph.inputs
