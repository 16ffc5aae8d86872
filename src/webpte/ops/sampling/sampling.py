"""Choosing the next token on the device, so that four bytes cross to the host and not a vocabulary.

Sampling is by the Gumbel trick: the token with the highest logit / temperature + noise, among those that top-k, top-p
and min-p leave. The noise is a hash of (seed, step, token), so equal seeds give equal text on one device, in whatever
row the sequence stands and whatever stands beside it.

A row that holds NaN or infinity has no likeliest token: the answer is UNUSABLE, or ALL_HIDDEN where every logit is
minus infinity, and its log probability NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...lowering.context import Context, LiveScalar, Tensor
from ...lowering.loads import kind
from ...lowering.registry import WORDS, op
from ...lowering.variants import ANYWHERE, Variant
from ...wgsl import Live, Uniforms, f32, u32

MOST_PARTS = 1024  # of a row, each looked at by one invocation
PART_STEPS = 8  # loads that are worth a part
ROUNDS = 6  # see sampling.wgsl
# One workgroup chooses in the end: on a CPU one that is a single vector wide.
NARROW, WIDE = Variant("narrow", ANYWHERE, 8), Variant("wide", ANYWHERE, 256)
# Columns of the settings of a row; of floats there are the bits. `mask` is not read yet.
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed", "step", "mask")
UNUSABLE, ALL_HIDDEN = -1, -2  # what stands in a token's place


class Sample(Uniforms):
    vocabulary: u32
    steps: u32  # loads per row
    parts: u32  # of a row
    # Bounds of loops, which literals would unroll:
    lanes: u32  # tokens per load
    invocations: u32
    rounds: u32
    unit: f32  # what the likeliest token of a bin weighs where probabilities are added up as integers
    advance: Live  # added to the step of every row


@op("webpte.sample", dtypes=WORDS)
def sample(cx: Context, logits: Tensor, settings: Tensor, advance: LiveScalar, *, out: tuple[Tensor, Tensor]) -> None:
    """Token and its log probability (at temperature 1, before any filter) for each row of logits.

    A row of settings is SETTINGS. They are data, so nothing here can refuse them: who makes them has to.
    """
    rows, vocabulary = _checked_dims(logits, settings)
    for tensor in out:
        tensor.dims = (rows,)
    bounds = _bounds(cx, vocabulary)
    parts, lanes, invocations = (bounds[name] for name in ("parts", "lanes", "invocations"))
    unit = 2.0 ** (31 - vocabulary.bit_length())  # all tokens together weigh less than 2^32
    params = Sample(vocabulary=vocabulary, unit=unit, **bounds, advance=advance.live)
    found = cx.scratch(DType.INT32, (rows, parts, 8))
    type_ = kind(logits, lanes)
    cx.dispatch(
        "sampling/sampling_part.wgsl",
        reads=(logits, settings),
        writes=(found,),
        params=params,
        threads=rows * parts,
        type=type_,
    )
    cx.dispatch(
        "sampling/sampling.wgsl",
        reads=(logits, found, settings),
        writes=out,
        params=params,
        threads=rows * invocations,
        workgroup=invocations,
        type=type_,
        invocations=invocations,
        unusable=UNUSABLE,
        all_hidden=ALL_HIDDEN,
    )


def _checked_dims(logits: Tensor, settings: Tensor) -> tuple[int, int]:
    """Rows and vocabulary."""
    if logits.rank != 2:
        raise ShapeError(f"logits have shape {list(logits.dims)}; expected rows by vocabulary")
    rows, vocabulary = logits.dims  # (P, V), (P, K) -> (P,), (P,)
    if settings.dims != (rows, len(SETTINGS)):
        raise ShapeError(f"settings have shape {list(settings.dims)}; expected {[rows, len(SETTINGS)]}")
    return rows, vocabulary


def _bounds(cx: Context, vocabulary: int) -> dict[str, int]:
    """How a row is divided."""
    lanes = 4 if vocabulary % 4 == 0 else 1
    steps = vocabulary // lanes
    invocations = cx.variant("sampler", (vocabulary,), cpu=(NARROW,), gpu=(WIDE,)).form
    return {
        "steps": steps,
        "parts": min(MOST_PARTS, -(-steps // PART_STEPS)),
        "lanes": lanes,
        "invocations": cx.caps.workgroup(invocations),
        "rounds": ROUNDS,
    }


@sample.reference
def _(logits: Any, settings: Any, advance: int) -> Any:
    unusable = (np.isnan(logits) | np.isposinf(logits)).any(axis=1)
    hidden = np.isneginf(logits).all(axis=1)
    wide = np.where((unusable | hidden)[:, None], 0, logits).astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    tokens = shifted.argmax(axis=1)
    keys = _keys(settings[:, 4], settings[:, 5] + advance)
    for packed in set(map(bytes, settings[:, :4])):
        filters = np.frombuffer(packed, np.int32)
        rows = np.flatnonzero((settings[:, :4] == filters).all(axis=1))
        temperature, top_p, min_p = (float(f) for f in filters[[0, 2, 3]].view(np.float32))
        if temperature > 0:
            scores = shifted[rows] / temperature
            scores = np.where(kept(scores, int(filters[1]), top_p, min_p), scores, -np.inf)
            tokens[rows] = (scores + _gumbel(keys[rows], scores.shape[1])).argmax(axis=1)
    chosen = np.take_along_axis(log_probabilities, tokens[:, None], axis=1)[:, 0]
    tokens = np.select([unusable, hidden], [UNUSABLE, ALL_HIDDEN], tokens)
    return tokens.astype(np.int32), np.where(tokens < 0, np.nan, chosen).astype(np.float32)


def kept(scores: Any, top_k: int, top_p: float, min_p: float = 0.0) -> Any:
    """Which tokens may be drawn: the k likeliest, of these the fewest that together have probability p, and of these
    whose probability is no less than `min_p` times the highest. The highest score of a row is 0."""
    found = np.ones(scores.shape, bool)
    descending = -np.sort(-scores, axis=1)
    if 0 < top_k < scores.shape[1]:
        found &= scores >= descending[:, top_k - 1 : top_k]
    if top_p < 1:
        mass = np.where(found, np.exp(scores), 0)
        sorted_mass = -np.sort(-mass, axis=1)
        before = np.cumsum(sorted_mass, axis=1) - sorted_mass
        inside = before < top_p * mass.sum(axis=1, keepdims=True)
        found &= mass >= np.where(inside, sorted_mass, np.inf).min(axis=1, keepdims=True)
    return found if min_p <= 0 else found & (scores >= np.log(min_p))


def _hash(v: Any) -> Any:
    with np.errstate(over="ignore"):
        state = v * np.uint32(747796405) + np.uint32(2891336453)
        word = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277803737)
    return (word >> np.uint32(22)) ^ word


def _keys(seeds: Any, steps: Any) -> Any:
    return _hash(_hash(_hash(seeds.astype(np.uint32)) ^ steps.astype(np.uint32)))


def _gumbel(keys: Any, vocabulary: int) -> Any:
    """Noise for each key and token."""
    return _gumbel_of(_hash(keys[:, None] ^ np.arange(vocabulary, dtype=np.uint32)))


def _gumbel_of(bits: Any) -> Any:
    """As the kernel does it, in f32 up to where the logarithms begin: inside (0, 1) for every pattern of bits."""
    inside = np.minimum((bits.astype(np.float32) + np.float32(0.5)) / np.float32(2**32), np.float32(1 - 2**-24))
    return -np.log(-np.log1p(-inside.astype(np.float64)))
