"""Fuse 4-bit and 8-bit linear layers: layers with one input, gates with their values, residuals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..graph import (
    Call,
    Constant,
    Double,
    DType,
    Graph,
    Int,
    IntList,
    Null,
    String,
    TensorSpec,
    Value,
    ValueList,
    numel,
)
from ..graph.names import LINEAR_Q4
from .dims import SymbolicDims
from .rewriter import Rewriter, roles

PATTERN = {
    "linear": ("et_vk.linear_q4gsw.default",),
    "dynamic": ("et_vk.linear_dq8ca_q4gsw.default",),
    "bytes": ("aten._weight_int8pack_mm.default",),
    "qparams": ("torchao.choose_qparams_affine.default",),
    "silu": ("aten.silu.default",),
    "sigmoid": ("aten.sigmoid.default",),
    "product": ("aten.mul.Tensor",),
    "sum": ("aten.add.Tensor",),
    "gelu": ("aten.gelu.default",),
    "fused": (LINEAR_Q4,),
}
ROLES = roles(PATTERN)
MAX_OUTPUTS = 3  # of a joined layer: with its inputs, as many buffers as every device can bind
MAX_WEIGHT_BYTES = 128 << 20  # of a joined weight: every device can bind it
WORD_BYTES = 4
SCALE_BYTES = 4  # of an offset, an f32
SILU, GELU_TANH = "silu", "gelu_tanh"  # activations of gates


@dataclass(frozen=True)
class QuantizedLinear:
    """A call of a 4-bit or 8-bit layer with its arguments."""

    index: int
    call: Call
    x: int
    qparams: tuple[int, ...]  # scales and zeros of the rows of x, if they are quantized to int8
    codes: int
    scales: int
    group: Value
    bias: int | None
    bits: int = 4
    offsets: int | None = None  # a constant of two spans, codes (G, N) and scales (N,): see fusion/offsets.py

    @property
    def out(self) -> int:
        return self.call.outs[0]

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.x, *self.qparams, self.codes, self.scales)


def quantized_linears(rewriter: Rewriter) -> list[QuantizedLinear]:
    """Return the layers with immutable arguments and results, whose calls may be moved."""
    linears = []
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        role = None if call is None else ROLES.get(call.name)
        if call is None or role not in READERS or len(call.outs) != 1:
            continue
        linear = READERS[role](rewriter, index, call)
        if linear is None:
            continue
        parts = (*linear.sources, linear.out, *(() if linear.bias is None else (linear.bias,)))
        if all(map(rewriter.is_immutable, parts)):
            linears.append(linear)
    return linears


def _four_bit(rewriter: Rewriter, index: int, call: Call) -> QuantizedLinear:
    arguments = rewriter.arguments(call)
    dynamic = ROLES[call.name] == "dynamic"
    qparams = (arguments["input_scales"], arguments["input_zp"]) if dynamic else ()
    x = arguments["input" if dynamic else "self"]
    bias = None if isinstance(rewriter.values[arguments["bias"]], Null) else arguments["bias"]
    group = rewriter.values[arguments["group_size"]]
    return QuantizedLinear(
        index=index,
        call=call,
        x=x,
        qparams=qparams,
        codes=arguments["weights"],
        scales=arguments["weight_scales"],
        group=group,
        bias=bias,
    )


def _eight_bit(rewriter: Rewriter, index: int, call: Call) -> QuantizedLinear:
    """Return an 8-bit layer, in which a row of the weight is one group."""
    arguments = rewriter.arguments(call)
    weight = rewriter.values[arguments["mat2"]]
    group = Int(weight.dims[-1] if isinstance(weight, TensorSpec) and weight.dims else 0)
    return QuantizedLinear(
        index=index,
        call=call,
        x=arguments["self"],
        qparams=(),
        codes=arguments["mat2"],
        scales=arguments["scales"],
        group=group,
        bias=None,
        bits=8,
    )


def _with_offsets(rewriter: Rewriter, index: int, call: Call) -> QuantizedLinear | None:
    """Return a layer with offsets; None if it has none, or if another pass has added more to it."""
    arguments = rewriter.arguments(call)
    codes, scales = rewriter.values[arguments["codes"]], rewriter.values[arguments["scales"]]
    assert isinstance(codes, ValueList) and isinstance(scales, ValueList)
    options = {name: None if isinstance(rewriter.values[i], Null) else i for name, i in arguments.items()}
    more = any(options[name] is not None for name in ("residual", "norm", "x_scales"))
    if len(codes.ids) != 1 or options["offsets"] is None or more:
        return None
    group = rewriter.values[arguments["group"]]
    return QuantizedLinear(
        index=index,
        call=call,
        x=arguments["x"],
        qparams=(),
        codes=codes.ids[0],
        scales=scales.ids[0],
        group=group,
        bias=options["bias"],
        offsets=options["offsets"],
    )


READERS: dict[str, Callable[[Rewriter, int, Call], QuantizedLinear | None]] = {
    "linear": _four_bit,
    "dynamic": _four_bit,
    "bytes": _eight_bit,
    "fused": _with_offsets,
}


def fused_call(
    rewriter: Rewriter,
    linear: QuantizedLinear,
    outs: Sequence[int],
    codes: Sequence[int],
    scales: Sequence[int],
    bias: int | None = None,
    residual: int | None = None,
    offsets: int | None = None,
    activation: str | None = None,
) -> Call:
    """Return the fused call, which ops/q4/linear_q4.py describes."""
    x_scales, x_zeros = linear.qparams or (None, None)
    return rewriter.make(
        LINEAR_Q4,
        outs,
        linear.call.origin,
        x=linear.x,
        x_scales=x_scales,
        x_zeros=x_zeros,
        codes=ValueList(tuple(codes)),
        scales=ValueList(tuple(scales)),
        group=linear.group,
        columns=IntList(tuple(tensor_spec(rewriter, out).dims[-1] for out in outs)),
        bias=bias,
        residual=residual,
        bits=Int(linear.bits),
        offsets=offsets,
        activation=None if activation is None else String(activation),
    )


# -- qparams -----------------------------------------------------------------------------------------------------------


def share_qparams(graph: Graph) -> Graph:
    """Compute the scales and zeros of an input once for all layers that read it."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    first_calls: dict[tuple[object, ...], Call] = {}
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        if call is None or ROLES.get(call.name) != "qparams":
            continue
        options = rewriter.arguments(call)
        x = options.pop("input")
        if not rewriter.is_immutable(x):
            continue
        key = (x, *(graph.values[a] for a in options.values()), *(graph.values[o] for o in call.outs))
        first = first_calls.setdefault(key, call)
        hidden = all(rewriter.is_immutable(o) and o not in rewriter.outputs for o in (*call.outs, *first.outs))
        if first is not call and hidden:
            rewriter.forward(index, *first.outs)
    return rewriter.result()


# -- gates -------------------------------------------------------------------------------------------------------------


def gate_linears(graph: Graph) -> Graph:
    """Fuse silu(a(x)) * b(x), the gate of a SwiGLU, or the same with GELU, into one call."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    linears = {linear.out: linear for linear in quantized_linears(rewriter) if linear.bias is None}
    for gate in linears.values():
        activation = _activation(rewriter, gate.out)
        product = rewriter.only_user(activation.values[-1]) if activation else None
        if activation is None or product is None or ROLES.get(product[1].name) != "product":
            continue
        at, call = product
        others = [linears[a] for a in call.args if a in linears and rewriter.only_user(a) == product]
        if len(others) != 1 or not _pair(rewriter, gate, others[0]) or not same_spec(rewriter, gate.out, call.outs[0]):
            continue
        (values,) = others
        steps = {gate.index, values.index, at, *(rewriter.producers[v][0] for v in activation.values)}
        codes, scales = (gate.codes, values.codes), (gate.scales, values.scales)
        offsets = _joined_offsets(rewriter, (gate, values), by_column=False)
        fused = fused_call(rewriter, gate, call.outs, codes, scales, offsets=offsets, activation=activation.name)
        rewriter.replace(steps, fused, at)
    return rewriter.result()


class GateActivation(NamedTuple):
    """The activation of a gate, and the values computed for it, itself last."""

    name: str
    values: list[int]


def _activation(rewriter: Rewriter, value_id: int) -> GateActivation | None:
    """Return the activation of a value; None if the value has other readers."""
    users = sorted(set(rewriter.users[value_id]))
    calls = [call for user in users if (call := rewriter.call(user)) is not None]
    if value_id in rewriter.outputs or len(rewriter.producers[value_id]) != 1:
        return None
    match [ROLES.get(call.name) for call in calls]:
        case ["silu"]:
            return GateActivation(SILU, [calls[0].outs[0]])
        case ["gelu"] if rewriter.values[rewriter.arguments(calls[0])["approximate"]] == String("tanh"):
            return GateActivation(GELU_TANH, [calls[0].outs[0]])
        case ["sigmoid", "product"]:
            sigmoid, product = calls
            sole = rewriter.only_user(sigmoid.outs[0]) == (users[1], product)
            if sole and set(product.args) == {value_id, sigmoid.outs[0]}:
                return GateActivation(SILU, [sigmoid.outs[0], product.outs[0]])
    return None


def _pair(rewriter: Rewriter, a: QuantizedLinear, b: QuantizedLinear) -> bool:
    """Return whether two layers differ only in the numbers of their weights."""
    same_input = (a.x, a.qparams) == (b.x, b.qparams)
    same_group = (a.group, a.bits, a.offsets is None) == (b.group, b.bits, b.offsets is None)
    shaped = same_spec(rewriter, a.codes, b.codes) and same_spec(rewriter, a.scales, b.scales)
    return same_input and same_group and shaped and same_spec(rewriter, a.out, b.out)


def same_spec(rewriter: Rewriter, a: int, b: int) -> bool:
    """Return whether two values are tensors of one dtype and bound."""
    one, other = rewriter.values[a], rewriter.values[b]
    if not isinstance(one, TensorSpec) or not isinstance(other, TensorSpec):
        return False
    return one.dtype is other.dtype and one.dims == other.dims


# -- joined weights ----------------------------------------------------------------------------------------------------


def join_linears(graph: Graph) -> Graph:
    """Join layers with one input, such as queries, keys and values, into one with the rows of all weights."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    groups: dict[tuple[object, ...], list[QuantizedLinear]] = defaultdict(list)
    for linear in quantized_linears(rewriter):
        if (key := _join_key(rewriter, linear)) is not None:
            groups[key].append(linear)
    for linears in groups.values():
        for start in range(0, len(linears), MAX_OUTPUTS):
            joined = linears[start : start + MAX_OUTPUTS]
            if len(joined) > 1:
                _join(rewriter, joined)
    return rewriter.result()


def _join_key(rewriter: Rewriter, linear: QuantizedLinear) -> tuple[object, ...] | None:
    """Return a key that is equal for layers that can be joined; None if the weight is computed or shared."""
    parts = (linear.codes, linear.scales, *(() if linear.bias is None else (linear.bias,)))
    formats = []
    for value_id in parts:
        spec = rewriter.values[value_id]
        assert isinstance(spec, TensorSpec)
        if spec.constant is None or spec.constant.rest or len(rewriter.users[value_id]) != 1:
            return None
        formats.append((spec.dtype, spec.constant.dtype))
    codes, scales = rewriter.values[linear.codes], rewriter.values[linear.scales]
    assert isinstance(codes, TensorSpec) and isinstance(scales, TensorSpec)
    if len(codes.dims) != 2 or len(scales.dims) not in (1, 2) or scales.dims[-1] < codes.dims[0]:
        return None
    shape = (codes.dims[1], scales.dims[:-1])
    return (linear.x, linear.qparams, linear.group, linear.bits, linear.offsets is None, shape, *formats)


def _join(rewriter: Rewriter, linears: Sequence[QuantizedLinear]) -> None:
    rows = [tensor_spec(rewriter, linear.codes).dims[0] for linear in linears]
    codes = _joined([tensor_spec(rewriter, linear.codes) for linear in linears], rows, by_rows=True)
    scales = _joined([tensor_spec(rewriter, linear.scales) for linear in linears], rows)
    biases = [tensor_spec(rewriter, linear.bias) for linear in linears if linear.bias is not None]
    bias = _joined(biases, rows) if biases else None
    if codes is None or scales is None or (biases and bias is None):
        return
    ids = [rewriter.add(spec) for spec in (codes, scales, bias) if spec is not None]
    outs = [linear.out for linear in linears]
    first = linears[0]
    offsets = _joined_offsets(rewriter, linears, by_column=True)
    call = fused_call(rewriter, first, outs, ids[:1], ids[1:2], ids[2] if biases else None, offsets=offsets)
    rewriter.replace([linear.index for linear in linears], call, first.index)


def _joined_offsets(rewriter: Rewriter, linears: Sequence[QuantizedLinear], by_column: bool) -> int | None:
    """Return the offsets of several layers, or None if they have none: the codes of all, then the scales of all.

    `by_column`: each group has the codes of all layers, which become one; else each layer has its groups.
    """
    if linears[0].offsets is None:
        return None
    specs = [tensor_spec(rewriter, linear.offsets) for linear in linears if linear.offsets is not None]
    constants = [spec.constant for spec in specs if spec.constant is not None]
    codes, scales = zip(*(constant.spans for constant in constants), strict=True)
    if by_column:
        columns = [span.size // SCALE_BYTES for span in scales]
        groups = range(codes[0].size // columns[0])
        codes = tuple(
            span.sub(group * count, count) for group in groups for span, count in zip(codes, columns, strict=True)
        )
    name = " + ".join(constant.name for constant in constants)
    constant = replace(constants[0], span=codes[0], name=name, rest=(*codes[1:], *scales))
    return rewriter.add(replace(specs[0], dims=(constant.nbytes,), constant=constant))


def tensor_spec(rewriter: Rewriter, value_id: int) -> TensorSpec:
    """Return a value that is a tensor."""
    spec = rewriter.values[value_id]
    assert isinstance(spec, TensorSpec)
    return spec


def _joined(specs: Sequence[TensorSpec], sizes: Sequence[int], by_rows: bool = False) -> TensorSpec | None:
    """Return tensors concatenated along the first dim or, the first `sizes` of each row, along the last.

    Return None if a piece would not start at a word, or the result is larger than `MAX_WEIGHT_BYTES`.
    """
    constants = [spec.constant for spec in specs if spec.constant is not None]
    width = constants[0].dtype.itemsize
    if by_rows:
        spans = [constant.span for constant in constants]
        dims = (sum(sizes), *specs[0].dims[1:])
    else:
        starts = range(numel(specs[0].dims[:-1]))  # rows of each
        spans = [
            constant.span.sub(row * spec.dims[-1] * width, size * width)
            for row in starts
            for constant, spec, size in zip(constants, specs, sizes, strict=True)
        ]
        dims = (*specs[0].dims[:-1], sum(sizes))
    if any(span.size % WORD_BYTES for span in spans) or sum(span.size for span in spans) > MAX_WEIGHT_BYTES:
        return None
    name = " + ".join(constant.name for constant in constants)
    return replace(specs[0], dims=dims, constant=Constant(spans[0], constants[0].dtype, name, tuple(spans[1:])))


# -- residuals ---------------------------------------------------------------------------------------------------------


def add_residuals(graph: Graph) -> Graph:
    """Fuse the addition of a residual into the layer before it."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for linear in quantized_linears(rewriter):
        user = rewriter.only_user(linear.out)
        residual = None if user is None else other_term(rewriter, user[1], linear.out, dims)
        if user is not None and residual is not None:
            at, call = user
            weights = ([linear.codes], [linear.scales])
            added = fused_call(
                rewriter, linear, call.outs, *weights, bias=linear.bias, residual=residual, offsets=linear.offsets
            )
            rewriter.replace([linear.index, at], added, at)
    return rewriter.result()


def other_term(rewriter: Rewriter, call: Call, term: int, dims: SymbolicDims) -> int | None:
    """Return what a call adds to `term`, a tensor of the same shape; None if the call does something else."""
    if ROLES.get(call.name) != "sum":
        return None
    arguments = rewriter.arguments(call)
    other = arguments["other" if arguments["self"] == term else "self"]
    plain = rewriter.values[arguments["alpha"]] in (Int(1), Double(1.0))
    fits = same_spec(rewriter, term, other) and same_spec(rewriter, term, call.outs[0])
    return other if plain and fits and dims.same(term, other) else None


# -- rows in int8 ------------------------------------------------------------------------------------------------------


def choose_in_linears(graph: Graph) -> Graph:
    """Fuse the choice of scales and zeros of rows into the layers that round them: one dispatch then does both."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    plain = {linear.index: linear for linear in quantized_linears(rewriter)}
    for index in range(len(graph.steps)):
        choice = rewriter.call(index)
        eps = None if choice is None else _row_eps(rewriter, choice)
        if choice is None or eps is None:
            continue
        readers = {at for out in choice.outs for at in rewriter.users[out]}
        layers = [(at, _with_row_eps(rewriter, at, plain, choice, eps)) for at in sorted(readers)]
        fused = [(at, layer) for at, layer in layers if layer is not None]
        if len(fused) == len(layers):
            for at, layer in fused:
                rewriter.replace([at], layer, at)
            rewriter.drop(index)
    return rewriter.result()


def _row_eps(rewriter: Rewriter, call: Call) -> Double | None:
    """Return the smallest scale, if a call chooses scales in f32 and zeros in int8 of rows; else None."""
    if ROLES.get(call.name) != "qparams" or not rewriter.outputs.isdisjoint(call.outs):
        return None
    ids = rewriter.arguments(call)
    options = {name: rewriter.values[value_id] for name, value_id in ids.items()}
    x, scale, eps = options["input"], rewriter.values[call.outs[0]], options["eps"]
    if not isinstance(x, TensorSpec) or not isinstance(scale, TensorSpec) or scale.dtype is not DType.FLOAT32:
        return None
    rows = IntList((*(1 for _ in x.dims[:-1]), *x.dims[-1:]))
    limits = (options["quant_min"], options["quant_max"]) in ((Int(-128), Int(127)), (Null(), Null()))
    asymmetric = options["mapping_type"] == String("ASYMMETRIC")
    immutable = all(map(rewriter.is_immutable, (ids["input"], *call.outs)))
    if not (options["block_size"] == rows and limits and asymmetric and immutable):
        return None
    if isinstance(eps, Null):  # torchao's default
        return Double(float(np.finfo(np.float16 if x.host_dtype is DType.FLOAT16 else np.float32).smallest_normal))
    return eps if isinstance(eps, Double) else None


def _with_row_eps(
    rewriter: Rewriter, at: int, plain: Mapping[int, QuantizedLinear], choice: Call, eps: Double
) -> Call | None:
    """Return the layer at a step with the smallest scale instead of scales and zeros; None if another call is there."""
    call, linear = rewriter.call(at), plain.get(at)
    if linear is not None:
        call = fused_call(rewriter, linear, linear.call.outs, [linear.codes], [linear.scales], linear.bias)
    if call is None or call.name != LINEAR_Q4:
        return None
    arguments = rewriter.arguments(call)
    source = rewriter.arguments(choice)["input"]
    if (arguments["x"], arguments["x_scales"], arguments["x_zeros"]) != (source, *choice.outs):
        return None
    changed = {**arguments, "x_scales": None, "x_zeros": None, "row_eps": eps}
    return rewriter.make(LINEAR_Q4, call.outs, call.origin, **changed)
