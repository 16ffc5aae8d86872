"""A mixture of experts: each row chooses a few gated feed-forwards, whose results are added by the router's weights.

A file may call this op, because no standard ops compute only the chosen experts without a copy of their weights for
each row. Its lowering relies on nothing but the shapes that it checks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, numel
from ...graph.names import EXPERTS
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.registry import op
from ...lowering.traits import CallSizes, Dims, OpTraits
from ...wgsl import Uniforms, f32, u32
from ..weight_formats import CodeFormat, format_named, scale_type

SOFTMAX, SIGMOID = "softmax", "sigmoid"  # of the router's logits
# Of gates. The last is that of gpt-oss: (clamp(up, -7, 7) + 1) * g * sigmoid(1.702 * g), where g is min(gate, 7).
SILU, GELU_TANH, CLAMPED = "silu", "gelu_tanh", "clamped_silu"
SLOPE, LIMIT = 1.702, 7.0
TILE_PAIRS = 8  # a pair is a row and one of its experts: pairs of one expert that read its weights together
PAIRS_PER_EXPERT = 2  # on average, from which pairs are sorted by expert
CPU_LANES, GPU_LANES = 1, 8  # invocations that share a sum
WORD_CODES, LOAD_CODES = 8, 32  # of a word, and of a load of four words
SCALE_TYPES = (DType.FLOAT32, DType.UINT8)
MAX_EXPERTS = 1024


class RouteParams(Uniforms):
    experts: u32
    chosen: u32


class OrderParams(Uniforms):
    pairs: u32
    tiles: u32


class ExpertProductParams(Uniforms):
    pairs: u32
    tiles: u32
    blocks: u32  # of columns
    columns: u32
    experts: u32
    row_pairs: u32  # pairs that read one row of x
    quads: u32  # of a row of x
    groups: u32
    group_loads: u32


class SumParams(Uniforms):
    chosen: u32
    quads: u32
    eps: f32
    factor: f32


class _Weight(NamedTuple):
    """The matrices of all experts, (E, N, K): floats, or codes (E, N, K / 2) and scales (E, N, K / group)."""

    values: Tensor
    scales: Tensor | None
    group: int
    format: CodeFormat  # of codes, which have 4 bits

    @property
    def columns(self) -> int:
        return self.values.dims[1]

    def check(self, name: str, experts: int, columns: int | None, inner: int) -> None:
        """Raise ShapeError if the weight is not that of `experts` matrices with `inner` columns."""
        fits = inner % 4 == 0 and self.values.rank == 3
        if self.scales is not None:
            expected: Dims = (experts, columns or self.values.dims[1], inner // 2)
            group = self.group
            fits = fits and self.format.bits == 4 and group > 0 and group % WORD_CODES == 0 and inner % group == 0
            fits = fits and self.scales.dims == (*expected[:2], inner // max(1, group))
            fits = fits and self.values.dtype is DType.UINT8 and self.scales.dtype in SCALE_TYPES
        else:
            expected = (experts, columns or self.values.dims[1], inner)
            fits = fits and self.values.dtype is DType.FLOAT32
        if not fits or self.values.dims != expected:
            scales = None if self.scales is None else list(self.scales.dims)
            raise ShapeError(
                argument=f"experts: {name}",
                expected=f"{list(expected)}, f32 or 4-bit codes with scales of whole words",
                got=f"{list(self.values.dims)} {self.values.dtype.short} with scales {scales}, groups of {self.group}",
                code="operand_mismatch",
            )


def _flops(sizes: CallSizes) -> int:
    """Return the operations of the chosen experts."""
    rows, inner = numel(sizes.out[:-1]), sizes.out[-1]
    return 6 * rows * int(sizes.number("chosen")) * sizes.dims("gate")[1] * inner


def _chosen_share(sizes: CallSizes, dims: Dims, written: bool) -> float:
    """Return the share of the experts that rows can choose."""
    return min(1.0, numel(sizes.out[:-1]) * int(sizes.number("chosen")) / max(1, dims[0]))


_WEIGHTS = ("gate", "gate_scales", "up", "up_scales", "down", "down_scales")


@op(
    EXPERTS,
    dtypes=frozenset({DType.FLOAT32, DType.UINT8, DType.INT32}),
    traits=OpTraits(
        work=_flops,
        dims=dim_rules.like("x"),
        memory_traffic=dict.fromkeys(_WEIGHTS, _chosen_share),
        sequences=True,
    ),
)
def experts(
    cx: Context,
    x: Tensor,
    logits: Tensor,
    bias: Tensor | None,
    gate: Tensor,
    gate_scales: Tensor | None,
    up: Tensor,
    up_scales: Tensor | None,
    down: Tensor,
    down_scales: Tensor | None,
    gate_group: int,
    down_group: int,
    chosen: int,
    scoring: str,
    normalized: bool,
    eps: float,
    factor: float,
    activation: str,
    format: str = "int4",
    input_bias: Tensor | None = None,
    output_bias: Tensor | None = None,
    *,
    out: Tensor,
) -> None:
    """Compute the weighted sum of the `chosen` experts of each row of x (..., K).

    `logits` (..., E) are those of the router. Their softmax or sigmoid are scores. The experts of the highest scores
    are chosen, with `bias` (E,) added for the choice only. The score of an expert is its weight, which with
    `normalized` is divided by the sum of those chosen plus `eps`. Weights are multiplied by `factor`. An expert
    computes down(activation(gate(x)) * up(x)); group sizes are 0 for weights in f32. Other weights are codes
    of a `format` in ops/weight_formats. Their scales are f32, or bytes: exponents of powers of two. `input_bias`
    (E, 2, N) is added to gate and up, `output_bias` (E, K) to down.
    """
    coded = format_named(format)
    inputs, hidden, outputs = (
        _Weight(gate, gate_scales, gate_group, coded),
        _Weight(up, up_scales, gate_group, coded),
        _Weight(down, down_scales, down_group, coded),
    )
    inner, count = x.dims[-1] if x.dims else 0, logits.dims[-1] if logits.dims else 0
    _check_numbers(scoring, activation, chosen, count)
    if x.dims[:-1] != logits.dims[:-1] or (bias is not None and bias.dims != (count,)):
        raise ShapeError(
            f"experts: expected logits and a bias of one width for the rows of {list(x.dims)}, got "
            f"{list(logits.dims)} and {bias}",
            code="operand_mismatch",
        )
    inputs.check("gate", count, None, inner)
    hidden.check("up", count, inputs.columns, inner)
    if _type_of(inputs.scales) != _type_of(hidden.scales):
        raise ShapeError("experts: gate and up must have one format", code="operand_mismatch")
    outputs.check("down", count, inner, inputs.columns)
    for name, added, dims in (
        ("input_bias", input_bias, (count, 2, inputs.columns)),
        ("output_bias", output_bias, (count, inner)),
    ):
        if added is not None and (added.dims != dims or added.dtype is not DType.FLOAT32):
            raise ShapeError(
                argument=f"experts: {name}",
                expected=f"f32{list(dims)}",
                got=f"{added.dtype.short}{list(added.dims)}",
                code="operand_mismatch",
            )
    out.dims = x.dims
    rows = numel(x.dims[:-1])
    ids, scores = cx.scratch(DType.INT32, (rows, chosen)), cx.scratch(DType.FLOAT32, (rows, chosen))
    cx.dispatch(
        "experts/route.wgsl",
        reads={"logits": logits, "bias": bias},
        writes={"ids": ids, "scores": scores},
        params=RouteParams(experts=count, chosen=chosen),
        threads=rows * count,
        scoring=scoring,
        biased=bias is not None,
    )
    between = cx.scratch(DType.FLOAT32, (rows * chosen, inputs.columns))
    results = cx.scratch(DType.FLOAT32, (rows * chosen, inner))
    pairs = _pairs_by_expert(cx, ids, count)
    _products(cx, x, (inputs, hidden), input_bias, between, pairs, row_pairs=chosen, activation=activation)
    _products(cx, between, (outputs,), output_bias, results, pairs, row_pairs=1, activation=activation)
    cx.dispatch(
        "experts/weighted_sum.wgsl",
        reads={"results": results, "scores": scores},
        writes={"y": out},
        params=SumParams(chosen=chosen, quads=inner // 4, eps=eps, factor=factor),
        threads=rows * inner // 4,
        normalized=normalized,
    )


def _type_of(scales: Tensor | None) -> DType | None:
    return None if scales is None else scales.dtype


def _check_numbers(scoring: str, activation: str, chosen: int, count: int) -> None:
    if scoring not in (SOFTMAX, SIGMOID):
        raise GraphError(argument="scoring", expected=f"{SOFTMAX} or {SIGMOID}", got=scoring, code="scoring")
    if activation not in (SILU, GELU_TANH, CLAMPED):
        expected = f"{SILU}, {GELU_TANH} or {CLAMPED}"
        raise GraphError(argument="activation", expected=expected, got=activation, code="activation")
    if not 0 < chosen <= count <= MAX_EXPERTS:
        raise ShapeError(
            argument="experts: chosen",
            expected=f"1 to the number of experts, {count}, which is at most {MAX_EXPERTS}",
            got=chosen,
            code="expert_count",
        )


class _Pairs(NamedTuple):
    """Pairs of a row and an expert in tiles of one expert: the expert of each tile, then, if sorted, its pairs."""

    order: Tensor
    pairs: int
    tiles: int
    tile: int
    experts: int


def _pairs_by_expert(cx: Context, ids: Tensor, count: int) -> _Pairs:
    """Return the pairs in tiles. A few are not sorted, and each is a tile."""
    pairs = numel(ids.dims)
    if pairs < PAIRS_PER_EXPERT * count:
        return _Pairs(ids, pairs, pairs, 1, count)
    tiles = (pairs + count * (TILE_PAIRS - 1)) // TILE_PAIRS
    order = cx.scratch(DType.INT32, (tiles * (TILE_PAIRS + 1),))
    cx.dispatch(
        "experts/order.wgsl",
        reads={"ids": ids},
        writes={"order": order},
        params=OrderParams(pairs=pairs, tiles=tiles),
        threads=1,
        workgroup=256,
        experts=count,
        tile=TILE_PAIRS,
    )
    return _Pairs(order, pairs, tiles, TILE_PAIRS, count)


def _products(
    cx: Context,
    x: Tensor,
    weights: tuple[_Weight, ...],
    bias: Tensor | None,
    out: Tensor,
    pairs: _Pairs,
    *,
    row_pairs: int,
    activation: str,
) -> None:
    """Compute the products of each pair; of two weights, the first is the gate of the second."""
    first = weights[0]
    inner = x.dims[-1]
    lanes = CPU_LANES if cx.caps.kind == "cpu" else GPU_LANES
    size = cx.caps.workgroup(64)
    blocks = -(-first.columns // (size // lanes))
    quantized = first.scales is not None
    words = 1 if first.group % LOAD_CODES else LOAD_CODES // WORD_CODES
    loads = inner // (words * WORD_CODES) if quantized else inner // 4
    groups = inner // first.group if quantized else loads
    cx.dispatch(
        "experts/products.wgsl",
        reads={"x": x, "order": pairs.order}
        | {f"weight{number}": weight.values for number, weight in enumerate(weights)}
        | {f"scales{number}": weight.scales for number, weight in enumerate(weights)}
        | ({} if bias is None else {"bias": bias}),
        writes={"y": out},
        params=ExpertProductParams(
            pairs=pairs.pairs,
            tiles=pairs.tiles,
            blocks=blocks,
            columns=first.columns,
            experts=pairs.experts,
            row_pairs=row_pairs,
            quads=inner // 4,
            groups=groups,
            group_loads=loads // groups,
        ),
        threads=pairs.tiles * blocks * size,
        workgroup=64,
        weights=len(weights),
        words=words if quantized else 0,
        tile=pairs.tile,
        lanes=lanes,
        loader=first.format.loader if quantized else "",
        scale_type=scale_type(first.scales) if first.scales is not None else "",
        activation=activation,
        **({} if bias is None else {"biased": True}),
    )


@experts.reference
def _(
    x: Any,
    logits: Any,
    bias: Any,
    gate: Any,
    gate_scales: Any,
    up: Any,
    up_scales: Any,
    down: Any,
    down_scales: Any,
    gate_group: int,
    down_group: int,
    chosen: int,
    scoring: str,
    normalized: bool,
    eps: float,
    factor: float,
    activation: str,
    format: str,
    input_bias: Any,
    output_bias: Any,
) -> Any:
    wide = logits.astype(np.float64).reshape(-1, logits.shape[-1])
    if scoring == SOFTMAX:
        scores = np.exp(wide - wide.max(-1, keepdims=True))
        scores = scores / scores.sum(-1, keepdims=True)
    else:
        scores = np.exp(-np.logaddexp(0, -wide))
    order = scores if bias is None else scores + bias
    ids = np.argsort(np.where(np.isnan(order), -np.inf, -order), axis=-1, kind="stable")[:, :chosen]
    weights = np.take_along_axis(scores, ids, -1)
    if normalized:
        weights = weights / (weights.sum(-1, keepdims=True) + eps)
    inputs, hidden, outputs = (
        numpy_experts(values, scales, format)
        for values, scales in ((gate, gate_scales), (up, up_scales), (down, down_scales))
    )
    rows = x.astype(np.float64).reshape(-1, x.shape[-1])
    result = np.zeros_like(rows)
    for row, (vector, own_ids, own_weights) in enumerate(zip(rows, ids, weights, strict=True)):
        for expert, weight in zip(own_ids, own_weights, strict=True):
            own_gate, own_up = inputs[expert] @ vector, hidden[expert] @ vector
            if input_bias is not None:
                own_gate, own_up = own_gate + input_bias[expert, 0], own_up + input_bias[expert, 1]
            own = outputs[expert] @ _gated(own_gate, own_up, activation)
            result[row] += weight * factor * (own if output_bias is None else own + output_bias[expert])
    return result.reshape(x.shape).astype(x.dtype)


def _gated(gate: Any, up: Any, activation: str) -> Any:
    if activation == GELU_TANH:
        return up * gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    slope = 1.0
    if activation == CLAMPED:
        slope, gate, up = SLOPE, np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT) + 1
    return up * gate * np.exp(-np.logaddexp(0, -slope * gate))


def numpy_experts(values: Any, scales: Any, format: str) -> Any:
    """Return the matrices of experts in float64."""
    if scales is None:
        return values.astype(np.float64)
    return format_named(format).numpy_rows(values, scales)
