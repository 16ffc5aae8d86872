"""A model's graph with the sampler behind it: the token is chosen where the logits are."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

from ..errors import UnsupportedError
from ..graph import SAMPLE, Call, DType, Graph, Int, Origin, Step, SymInt, TensorSpec, Value
from .pattern import roles

LOGITS, TOKEN, LOG_PROBABILITY, LIKELIEST, LIKELIEST_LOG_PROBABILITY = range(5)  # positions of the outputs
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed", "step", "mask", "unused")  # words of a row's
EDITED, TOPS = 1, 2  # bits of the features: see webpte.sample
PATTERN = {"select": ("aten.select_copy.int",)}
ROLES = roles(PATTERN)
SELECT = PATTERN["select"][0]
MOST_TOPS = 20  # likeliest tokens that are reported
MOST_EDITS = 3072  # of a row: with masks, those of 32 rows are 2 MB where the vocabulary has 128,256 tokens


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
    most = rows * len(SETTINGS) + padded(rows * (4 * min(MOST_EDITS, vocabulary) + mask_words(vocabulary)))
    choices = add(TensorSpec(DType.INT32, (most,), DType.INT32, dynamic=True))
    edits, features = add(SymInt()), add(SymInt())
    shapes = (rows,), (rows,), (rows, MOST_TOPS), (rows, MOST_TOPS)
    kinds = DType.INT32, DType.FLOAT32, DType.INT32, DType.FLOAT32
    found = tuple(add(TensorSpec(kind, dims, kind)) for kind, dims in zip(kinds, shapes, strict=True))
    steps.append(Call(SAMPLE, (logits, choices, advance, edits, features), found, origin))
    return Sampler((choices, edits, features), found)


def mask_words(vocabulary: int) -> int:
    """Words of a mask, in which each token has a bit."""
    return -(-vocabulary // 32)


def padded(words: int) -> int:
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
