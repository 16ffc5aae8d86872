"""Choosing the next token on the device, so that four bytes cross to the host and not a vocabulary.

Sampling is by the Gumbel trick: the token with the highest logit / temperature + noise, among those that top-k and
top-p leave. The noise is a hash of (seed, step, row, token), so equal seeds give equal text on one device.

A row that holds NaN or infinity has no likeliest token: the answer is UNUSABLE, or ALL_HIDDEN where every logit is
minus infinity, and its log probability NaN.
"""

from __future__ import annotations

import math
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
    temperature: Live  # bits of a float; 0 takes the likeliest token
    top_k: Live  # 0: no limit
    top_p: Live  # bits of a float
    seed: Live
    step: Live


@op("webpte.sample", dtypes=WORDS)
def sample(
    cx: Context,
    logits: Tensor,
    temperature: LiveScalar,
    top_k: LiveScalar,
    top_p: LiveScalar,
    seed: LiveScalar,
    step: LiveScalar,
    *,
    out: tuple[Tensor, Tensor],
) -> None:
    """Token and its log probability (at temperature 1, before any filter) for each row of logits."""
    if logits.rank != 2:
        raise ShapeError(f"logits have shape {list(logits.dims)}; expected rows by vocabulary")
    rows, vocabulary = logits.dims  # (B, V) -> (B,), (B,)
    for tensor in out:
        tensor.dims = (rows,)
    _guard_settings(cx, temperature, top_k, top_p)
    live = {"temperature": temperature.live_bits, "top_k": top_k.live, "top_p": top_p.live_bits}
    bounds = _bounds(cx, vocabulary)
    parts, lanes, invocations = (bounds[name] for name in ("parts", "lanes", "invocations"))
    unit = 2.0 ** (31 - vocabulary.bit_length())  # all tokens together weigh less than 2^32
    params = Sample(vocabulary=vocabulary, unit=unit, **bounds, **live, seed=seed.live, step=step.live)
    found = cx.scratch(DType.INT32, (rows, parts, 8))
    type_ = kind(logits, lanes)
    cx.dispatch(
        "sampling/sampling_part.wgsl", reads=(logits,), writes=(found,), params=params, threads=rows * parts, type=type_
    )
    cx.dispatch(
        "sampling/sampling.wgsl",
        reads=(logits, found),
        writes=out,
        params=params,
        threads=rows * invocations,
        workgroup=invocations,
        type=type_,
        invocations=invocations,
        unusable=UNUSABLE,
        all_hidden=ALL_HIDDEN,
    )


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


def _guard_settings(cx: Context, temperature: LiveScalar, top_k: LiveScalar, top_p: LiveScalar) -> None:
    limits = "the first two must not be negative, the last must be above 0 and at most 1"
    message = f"temperature {{1}}, top_k {{2}}, top_p {{3}}: {limits}"
    settings = (temperature.term, top_k.term, top_p.term)
    cx.guard(temperature.term, 0, None, message, *settings)
    cx.guard(top_k.term, 0, None, message, *settings)
    cx.guard(top_p.term, math.nextafter(0, 1), math.nextafter(1, 2), message, *settings)


@sample.reference
def _(logits: Any, temperature: float, top_k: int, top_p: float, seed: int, step: int) -> Any:
    unusable = (np.isnan(logits) | np.isposinf(logits)).any(axis=1)
    hidden = np.isneginf(logits).all(axis=1)
    wide = np.where((unusable | hidden)[:, None], 0, logits).astype(np.float64)
    shifted = wide - wide.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    if temperature == 0:
        tokens = wide.argmax(axis=1)
    else:
        scores = np.where(_kept(shifted / temperature, top_k, top_p), shifted / temperature, -np.inf)
        tokens = (scores + _gumbel(logits.shape, seed, step)).argmax(axis=1)
    chosen = np.take_along_axis(log_probabilities, tokens[:, None], axis=1)[:, 0]
    tokens = np.select([unusable, hidden], [UNUSABLE, ALL_HIDDEN], tokens)
    return tokens.astype(np.int32), np.where(tokens < 0, np.nan, chosen).astype(np.float32)


def _kept(scores: Any, top_k: int, top_p: float) -> Any:
    """Which tokens may be drawn: the k likeliest, and of these the fewest that together have probability p."""
    kept = np.ones(scores.shape, bool)
    descending = -np.sort(-scores, axis=1)
    if 0 < top_k < scores.shape[1]:
        kept &= scores >= descending[:, top_k - 1 : top_k]
    if top_p < 1:
        mass = np.where(kept, np.exp(scores), 0)
        order = np.argsort(-mass, axis=1, kind="stable")
        sorted_mass = np.take_along_axis(mass, order, axis=1)
        before = np.cumsum(sorted_mass, axis=1) - sorted_mass
        inside = before < top_p * mass.sum(axis=1, keepdims=True)
        lowest = np.where(inside, sorted_mass, np.inf).min(axis=1, keepdims=True)
        kept &= mass >= lowest
    return kept


def _hash(v: Any) -> Any:
    with np.errstate(over="ignore"):
        state = v * np.uint32(747796405) + np.uint32(2891336453)
        word = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277803737)
    return (word >> np.uint32(22)) ^ word


def _gumbel(shape: tuple[int, ...], seed: int, step: int) -> Any:
    key = _hash(_hash(np.array([seed], np.int64).astype(np.uint32)) ^ np.uint32(step))
    rows = _hash(key ^ np.arange(shape[0], dtype=np.uint32))[:, None]
    noise = _hash(rows ^ np.arange(shape[1], dtype=np.uint32)[None, :])
    return _gumbel_of(noise)


def _gumbel_of(bits: Any) -> Any:
    """As the kernel does it, in f32 up to where the logarithms begin: inside (0, 1) for every pattern of bits."""
    inside = np.minimum((bits.astype(np.float32) + np.float32(0.5)) / np.float32(2**32), np.float32(1 - 2**-24))
    return -np.log(-np.log1p(-inside.astype(np.float64)))
