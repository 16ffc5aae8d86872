"""Choose the next token on the device, so that four bytes are transferred to the host instead of a vocabulary.

Sampling is by the Gumbel trick: the token with the highest logit / temperature + noise, among those that top-k, top-p
and min-p leave. The noise is a hash of (seed, step, token), so equal seeds give equal text on one device. The row of
the sequence and the other rows do not matter.

The parameters of all rows are data in one tensor of words, `choices`:
- the settings of each row, SETTINGS, of floats the bits;
- edits of logits, (row, token, factor, addend): a positive logit is divided by the factor, another multiplied, and the
  addend added; no two of the same row and token;
- masks, a bit for each token that may be chosen, first the lowest of a word. A row's `mask` is the word it begins with.

A row that holds NaN or infinity has no most probable token: the answer is UNUSABLE, or ALL_HIDDEN where every logit is
minus infinity or masked, and its log probability NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import DType
from ...lowering.context import Arrays, Context, LiveScalar, Tensor, load_type
from ...lowering.registry import WORDS, op
from ...lowering.variants import ANYWHERE, Variant
from ...wgsl import Live, Uniforms, f32, u32
from ..reduce.reduce import with_subgroups

MAX_PARTS = 1024  # of a row, one per invocation
PART_STEPS = 8  # minimum loads of a part
ROUNDS = 6  # see sampling.wgsl
# One workgroup chooses in the end: on a CPU one that is a single vector wide.
NARROW, WIDE = Variant("narrow", ANYWHERE, 8, "narrow"), Variant("wide", ANYWHERE, 256, "wide")
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed", "step", "mask", "unused")
COLUMNS, MASK = len(SETTINGS), SETTINGS.index("mask")
EDITED, TOP_LOGPROBS = 1, 2  # bits of the features: there are edits or masks; the most probable tokens are requested
MAX_TOP_LOGPROBS = 20
LARGE = 3.4e38  # edits leave logits finite
UNUSABLE, ALL_HIDDEN = -1, -2  # results instead of a token


class SampleParams(Uniforms):
    vocabulary: u32
    steps: u32  # loads per row
    parts: u32  # of a row
    # Bounds of loops, which literals would unroll:
    width: u32  # tokens per load
    lanes: u32  # invocations that share a row in the end
    rounds: u32
    unit: f32  # the weight of the most probable token of a bin, where probabilities are added up as integers
    tops: u32
    advance: Live  # added to the step of every row


class EditParams(Uniforms):
    rows: u32
    vocabulary: u32
    steps: u32  # loads per row
    first: u32  # word of the edits
    last_mask: u32  # the last word that a mask can begin with
    edits: Live


@op("webpte.sample", dtypes=WORDS)
def sample(
    cx: Context,
    logits: Tensor,
    choices: Tensor,
    advance: LiveScalar,
    edits: LiveScalar,
    features: LiveScalar,
    *,
    out: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Choose a token for each row of logits, with its log probability (of the raw logits, at temperature 1).

    If the features request it, also list the most probable tokens and their log probabilities.

    `choices` is data, so it cannot be checked here. The caller that fills it must check it.
    """
    rows, vocabulary = _checked_dims(logits, choices)
    requested = features.value
    tops = MAX_TOP_LOGPROBS if requested & TOP_LOGPROBS else 0
    for tensor, dims in zip(out, ((rows,), (rows,), (rows, tops), (rows, tops)), strict=True):
        tensor.dims = dims
    bounds = _bounds(cx, vocabulary)
    parts, lanes = bounds["parts"], bounds["lanes"]
    unit = 2.0 ** (31 - vocabulary.bit_length())  # all tokens together weigh less than 2^32
    params = SampleParams(vocabulary=vocabulary, unit=unit, **bounds, tops=tops, advance=advance.dynamic)
    type_ = load_type(logits, bounds["width"])
    partial = cx.scratch(DType.INT32, (rows, parts, 8))
    changed = cx.scratch(DType.FLOAT32, (rows, vocabulary))
    edited = changed if requested & EDITED else None
    _edit(cx, logits, choices=choices, edits=edits, changed=changed, type_=type_, times=int(edited is not None))
    common: dict[str, Any] = {"params": params, "type": type_}
    row_flags: dict[str, Any] = {"columns": COLUMNS, "edited": edited is not None}
    reads: Arrays = {"logits": logits, "choices": choices, "edited": edited}
    cx.dispatch(
        "sampling/sampling_part.wgsl",
        reads=reads,
        writes={"parts": partial},
        threads=rows * parts,
        **common,
        **row_flags,
    )
    common |= {"workgroup": lanes, "lanes": lanes, "subgroups": with_subgroups(cx, lanes)}
    cx.dispatch(
        "sampling/sampling.wgsl",
        reads={"logits": logits, "choices": choices, "parts": partial, "edited": edited},
        writes={"tokens": out[0], "log_probabilities": out[1]},
        threads=rows * lanes,
        unusable=UNUSABLE,
        all_hidden=ALL_HIDDEN,
        **common,
        **row_flags,
    )
    cx.dispatch(
        "sampling/top_logprobs.wgsl",
        reads={"logits": logits, "parts": partial},
        writes={"tokens": out[2], "log_probabilities": out[3]},
        threads=rows * lanes * (tops > 0),
        max_parts=MAX_PARTS,
        **common,
    )


def _checked_dims(logits: Tensor, choices: Tensor) -> tuple[int, int]:
    """Return the rows and the vocabulary, or raise ShapeError."""
    if logits.rank != 2:
        raise ShapeError(argument="logits", expected="(rows, vocabulary)", got=list(logits.dims), code="rank")
    rows, vocabulary = logits.dims  # (P, V)
    words = choices.numel
    if words < rows * COLUMNS or words % 4:
        raise ShapeError(
            argument="choices",
            expected=f"a multiple of 4 and at least {rows} x {COLUMNS} words",
            got=words,
            code="operand_mismatch",
        )
    return rows, vocabulary


def _edit(
    cx: Context, logits: Tensor, choices: Tensor, edits: LiveScalar, changed: Tensor, type_: str, times: int
) -> None:
    """Apply masks and edits to the logits. With `times` 0 nothing runs, but the plan records the bindings."""
    rows, vocabulary = logits.dims
    steps = vocabulary // (4 if type_.endswith("x4") else 1)
    first, words = rows * COLUMNS, choices.numel
    last = max(words - -(-vocabulary // 32), 0)
    params = EditParams(rows=rows, vocabulary=vocabulary, steps=steps, first=first, last_mask=last, edits=edits.dynamic)
    cx.dispatch(
        "sampling/masked.wgsl",
        reads={"logits": logits, "choices": choices},
        writes={"edited": changed},
        params=params,
        threads=rows * steps * times,
        type=type_,
        columns=COLUMNS,
        mask=MASK,
    )
    quads = (words - first) // 4 * times
    cx.dispatch(
        "sampling/edits.wgsl", reads={"choices": choices}, writes={"edited": changed}, params=params, threads=quads
    )


def _bounds(cx: Context, vocabulary: int) -> dict[str, int]:
    """Return the bounds of the loops over a row."""
    width = 4 if vocabulary % 4 == 0 else 1
    steps = vocabulary // width
    lanes = cx.variant("sampler", (vocabulary,), cpu=(NARROW,), gpu=(WIDE,)).config
    return {
        "steps": steps,
        "parts": min(MAX_PARTS, -(-steps // PART_STEPS)),
        "width": width,
        "lanes": cx.caps.workgroup(lanes),
        "rounds": ROUNDS,
    }


@sample.reference
def _(logits: Any, choices: Any, advance: int, edits: int, features: int) -> Any:
    settings = choices[: len(logits) * COLUMNS].reshape(-1, COLUMNS)
    adjusted = _adjusted(logits, choices, settings, edits) if features & EDITED else logits
    unusable = (np.isnan(logits) | np.isposinf(logits)).any(axis=1)
    hidden = np.isneginf(adjusted).all(axis=1)
    shifted = _shifted(adjusted, unusable | hidden)
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
    without = unusable | np.isneginf(logits).all(axis=1)
    raw = _shifted(logits, without)
    log_probabilities = raw - np.log(np.exp(raw).sum(axis=1, keepdims=True))
    chosen = np.take_along_axis(log_probabilities, tokens[:, None], axis=1)[:, 0]
    tokens = np.select([unusable, hidden], [UNUSABLE, ALL_HIDDEN], tokens)
    tops = _top_logprobs(logits, log_probabilities, without, MAX_TOP_LOGPROBS if features & TOP_LOGPROBS else 0)
    return tokens.astype(np.int32), np.where(tokens < 0, np.nan, chosen).astype(np.float32), *tops


def _adjusted(logits: Any, choices: Any, settings: Any, edits: int) -> Any:
    """Return the logits after masks and edits."""
    adjusted = logits.astype(np.float64)
    words = -(-logits.shape[1] // 32)
    for row, mask in enumerate(settings[:, MASK]):
        if 0 <= mask <= len(choices) - words:
            bits = np.unpackbits(choices[mask : mask + words].view(np.uint8), bitorder="little")
            adjusted[row, bits[: logits.shape[1]] == 0] = -np.inf
    for edit in choices[settings.size : settings.size + 4 * edits].reshape(-1, 4):
        row, token = edit[:2]
        factor, addend = edit[2:].view(np.float32).astype(np.float64)
        if 0 <= row < len(logits) and 0 <= token < logits.shape[1] and not np.isneginf(adjusted[row, token]):
            x = adjusted[row, token]
            adjusted[row, token] = np.clip((x / factor if x > 0 else x * factor) + addend, -LARGE, LARGE)
    return adjusted


def _shifted(logits: Any, without: Any) -> Any:
    """Return the logits minus the highest of their row; 0 for rows in `without`."""
    wide = np.where(without[:, None], 0, logits).astype(np.float64)
    return wide - wide.max(axis=1, keepdims=True)


def _top_logprobs(logits: Any, log_probabilities: Any, without: Any, count: int) -> tuple[Any, Any]:
    tokens = np.full((len(log_probabilities), count), -1, np.int32)
    values = np.zeros(tokens.shape, np.float32)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    best = np.take_along_axis(log_probabilities, order, axis=1)
    there = np.isfinite(best) & ~without[:, None]
    tokens[:, : order.shape[1]] = np.where(there, order, -1)
    values[:, : order.shape[1]] = np.where(there, best, 0)
    return tokens, values


def kept(scores: Any, top_k: int, top_p: float, min_p: float = 0.0) -> Any:
    """Return which tokens may be drawn, by top-k, then top-p, then min-p. The highest score of a row is 0.

    top-k keeps the k most probable; top-p the fewest of them that together have probability p; min-p those whose
    probability is at least `min_p` times the highest.
    """
    kept = np.ones(scores.shape, bool)
    descending = -np.sort(-scores, axis=1)
    if 0 < top_k < scores.shape[1]:
        kept &= scores >= descending[:, top_k - 1 : top_k]
    if top_p < 1:
        mass = np.where(kept, np.exp(scores), 0)
        sorted_mass = -np.sort(-mass, axis=1)
        before = np.cumsum(sorted_mass, axis=1) - sorted_mass
        inside = before < top_p * mass.sum(axis=1, keepdims=True)
        kept &= mass >= np.where(inside, sorted_mass, np.inf).min(axis=1, keepdims=True)
    return kept if min_p <= 0 else kept & (scores >= np.log(min_p))


def _hash(v: Any) -> Any:
    with np.errstate(over="ignore"):
        state = v * np.uint32(747796405) + np.uint32(2891336453)
        word = ((state >> ((state >> np.uint32(28)) + np.uint32(4))) ^ state) * np.uint32(277803737)
    return (word >> np.uint32(22)) ^ word


def _keys(seeds: Any, steps: Any) -> Any:
    return _hash(_hash(_hash(seeds.astype(np.uint32)) ^ steps.astype(np.uint32)))


def _gumbel(keys: Any, vocabulary: int) -> Any:
    """Return noise for each key and token."""
    return _gumbel_of(_hash(keys[:, None] ^ np.arange(vocabulary, dtype=np.uint32)))


def _gumbel_of(bits: Any) -> Any:
    """Return Gumbel noise. Up to the logarithms it is f32, as in the kernel, so all bit patterns are inside (0, 1)."""
    inside = np.minimum((bits.astype(np.float32) + np.float32(0.5)) / np.float32(2**32), np.float32(1 - 2**-24))
    return -np.log(-np.log1p(-inside.astype(np.float64)))
