"""Fuse 4-bit and 8-bit linear layers that have one input, and the rounding of their inputs into them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from ..graph.names import INT4, INT4_HIGH_FIRST, INT8, LINEAR_Q4
from .pieces import Pieces, piece
from .rewriter import Rewriter, roles

PATTERN = {
    "groups": ("et_vk.linear_q4gsw.default",),
    "rows and groups": ("et_vk.linear_dq8ca_q4gsw.default",),
    "channels": ("et_vk.linear_qcs4w.default",),
    "bytes": ("aten._weight_int8pack_mm.default",),
    "fused": (LINEAR_Q4,),
    "qparams": ("torchao.choose_qparams_affine.default",),
}
ROLES = roles(PATTERN)
MAX_OUTPUTS = 3  # of a joined layer: with its inputs, as many buffers as every device can bind
MAX_WEIGHT_BYTES = 128 << 20  # of a joined weight: every device can bind it
WORD_BYTES = 4
SCALE_BYTES = 4  # of an offset, an f32
PIECE_BYTES = 1 << 16  # of scales that are read at once

# The calls that are layers, with the names of QuantizedLinear for their arguments. Without a group, a row is one group.
GROUPED = {"weights": "codes", "weight_scales": "scales", "group_size": "group", "bias": "bias"}
OWN_NAMES = ("x", "x_scales", "x_zeros", "group", "bias", "format", "offsets")
ADDED = dict.fromkeys(("norm", "row_eps", "program"), Null())  # by later passes: such a layer is more than its weights
LAYERS = {
    "groups": piece("groups", self="x", **GROUPED),
    "rows and groups": piece("rows and groups", input="x", input_scales="x_scales", input_zp="x_zeros", **GROUPED),
    "channels": piece("channels", self="x", weight="codes", scales="scales"),
    "bytes": piece("bytes", self="x", mat2="codes", scales="scales"),
    "fused": piece("fused", codes=("codes",), scales=("scales",), **{name: name for name in OWN_NAMES}, **ADDED),
}
FORMATS = {"groups": INT4, "rows and groups": INT4, "channels": INT4_HIGH_FIRST, "bytes": INT8}
# A choice of scales and zeros of rows in int8, within these limits.
CHOICE = piece("qparams", input="x", block_size="rows", mapping_type=String("ASYMMETRIC"), eps="eps")
LIMITS = ((Int(-128), Int(127)), (Null(), Null()))


@dataclass(frozen=True)
class QuantizedLinear:
    """A call of one 4-bit or 8-bit layer with its arguments, and nothing around it but a bias."""

    index: int
    call: Call
    x: int
    qparams: tuple[int, ...]  # scales and zeros of the rows of x, if they are quantized to int8
    codes: int
    scales: int
    group: Value
    bias: int | None
    format: str = INT4
    offsets: int | None = None  # a constant of two spans, codes (G, N) and scales (N,): see fusion/offsets.py

    @property
    def out(self) -> int:
        return self.call.outs[0]

    @property
    def sources(self) -> tuple[int, ...]:
        return (self.x, *self.qparams, self.codes, self.scales, *(() if self.bias is None else (self.bias,)))

    @property
    def buffers(self) -> tuple[int, ...]:
        """Return the tensors that a kernel binds: rounded rows are one."""
        return tuple(v for v in (*self.sources, self.offsets) if v is not None and v not in self.qparams)


def quantized_linears(rewriter: Rewriter) -> list[QuantizedLinear]:
    """Return the layers with immutable arguments and results, whose calls may be moved."""
    linears = (quantized_linear(rewriter, index) for index in range(len(rewriter.steps)))
    return [linear for linear in linears if linear is not None]


def quantized_linear(rewriter: Rewriter, index: int) -> QuantizedLinear | None:
    """Return the layer at a step, if its call may be moved."""
    call = rewriter.call(index)
    role = "" if call is None else ROLES.get(call.name, "")
    if call is None or role not in LAYERS or len(call.outs) != 1:
        return None
    ids = Pieces(rewriter, ROLES).matched(call.outs[0], LAYERS[role])
    if ids is None:
        return None
    present = {name: value_id for name, value_id in ids.items() if not isinstance(rewriter.values[value_id], Null)}
    values = {name: rewriter.values[value_id] for name, value_id in present.items()}
    x, code_format = values["x"], values.get("format")
    assert code_format is None or isinstance(code_format, String)
    linear = QuantizedLinear(
        index=index,
        call=call,
        x=ids["x"],
        qparams=tuple(present[name] for name in ("x_scales", "x_zeros") if name in present),
        codes=ids["codes"],
        scales=ids["scales"],
        group=values.get("group", Int(x.dims[-1] if isinstance(x, TensorSpec) and x.dims else 0)),
        bias=present.get("bias"),
        format=FORMATS[role] if code_format is None else code_format.value,
        offsets=present.get("offsets"),
    )
    return linear if all(map(rewriter.is_immutable, (*linear.sources, linear.out))) else None


def fused_at(rewriter: Rewriter, index: int) -> Call | None:
    """Return the fused call of the layers at a step; None if another call is there."""
    linear, call = quantized_linear(rewriter, index), rewriter.call(index)
    if linear is not None:
        return fused_call(rewriter, [linear], linear.call.outs)
    return call if call is not None and call.name == LINEAR_Q4 else None


def fused_call(
    rewriter: Rewriter, linears: Sequence[QuantizedLinear], outs: Sequence[int], /, **changes: int | Value | None
) -> Call:
    """Return the fused call of one layer, or of two that differ only in their weights: see ops/q4/linear_q4.py."""
    first = linears[0]
    x_scales, x_zeros = first.qparams or (None, None)
    arguments: dict[str, int | Value | None] = {
        "x": first.x,
        "x_scales": x_scales,
        "x_zeros": x_zeros,
        "codes": ValueList(tuple(linear.codes for linear in linears)),
        "scales": ValueList(tuple(linear.scales for linear in linears)),
        "group": first.group,
        "columns": IntList((tensor_spec(rewriter, first.out).dims[-1],)),
        "bias": first.bias,
        "format": String(first.format),
        "offsets": joined_offsets(rewriter, linears, by_column=False),
    }
    return rewriter.make(LINEAR_Q4, outs, first.call.origin, **{**arguments, **changes})


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


# -- pairs -------------------------------------------------------------------------------------------------------------


def are_pair(rewriter: Rewriter, a: QuantizedLinear, b: QuantizedLinear) -> bool:
    """Return whether two layers without bias differ only in the numbers of their weights."""
    shaped = all(same_spec(rewriter, *ids) for ids in ((a.codes, b.codes), (a.scales, b.scales), (a.out, b.out)))
    return shaped and a.bias is None and _format(a) == _format(b)


def _format(linear: QuantizedLinear) -> tuple[object, ...]:
    """Return what layers that share a kernel have in common, besides the shapes of their weights."""
    return (linear.x, linear.qparams, linear.group, linear.bias is None, linear.format, linear.offsets is None)


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
    return (*_format(linear), codes.dims[1], scales.dims[:-1], *formats)


def _join(rewriter: Rewriter, linears: Sequence[QuantizedLinear]) -> None:
    rows = [tensor_spec(rewriter, linear.codes).dims[0] for linear in linears]
    codes = _joined([tensor_spec(rewriter, linear.codes) for linear in linears], rows, by_rows=True)
    scales = _joined([tensor_spec(rewriter, linear.scales) for linear in linears], rows)
    biases = [tensor_spec(rewriter, linear.bias) for linear in linears if linear.bias is not None]
    bias = _joined(biases, rows) if biases else None
    if codes is None or scales is None or (biases and bias is None):
        return
    outs = [linear.out for linear in linears]
    call = fused_call(
        rewriter,
        linears[:1],
        outs,
        codes=ValueList((rewriter.add(codes),)),
        scales=ValueList((rewriter.add(scales),)),
        columns=IntList(tuple(tensor_spec(rewriter, out).dims[-1] for out in outs)),
        bias=bias and rewriter.add(bias),
        offsets=joined_offsets(rewriter, linears, by_column=True),
    )
    rewriter.replace([linear.index for linear in linears], call, linears[0].index)


def joined_offsets(rewriter: Rewriter, linears: Sequence[QuantizedLinear], by_column: bool) -> int | None:
    """Return the offsets of several layers, or None if they have none: the codes of all, then the scales of all.

    `by_column`: each group has the codes of all layers, which become one; else each layer has its groups.
    """
    if linears[0].offsets is None or len(linears) == 1:
        return linears[0].offsets
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


# -- rows in int8 ------------------------------------------------------------------------------------------------------


def choose_in_linears(graph: Graph) -> Graph:
    """Fuse the choice of scales and zeros of rows into the layers that round them: one dispatch then does both."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    for index in range(len(graph.steps)):
        choice = rewriter.call(index)
        eps = None if choice is None else _row_eps(rewriter, choice)
        if choice is None or eps is None:
            continue
        readers = sorted({at for out in choice.outs for at in rewriter.users[out]})
        layers = [_with_row_eps(rewriter, at, choice, eps) for at in readers]
        if None not in layers:
            for at, layer in zip(readers, filter(None, layers), strict=True):
                rewriter.replace([at], layer, at)
            rewriter.drop(index)
    return rewriter.result()


def _row_eps(rewriter: Rewriter, call: Call) -> Double | None:
    """Return the smallest scale, if a call chooses scales in f32 and zeros in int8 of rows; else None."""
    ids = Pieces(rewriter, ROLES).matched(call.outs[0], CHOICE) if len(call.outs) == 2 else None
    if ids is None:
        return None
    x, scale, eps = (rewriter.values[value_id] for value_id in (ids["x"], call.outs[0], ids["eps"]))
    if not isinstance(x, TensorSpec) or not isinstance(scale, TensorSpec) or scale.dtype is not DType.FLOAT32:
        return None
    options = rewriter.arguments(call)
    limits = tuple(rewriter.values[options[name]] for name in ("quant_min", "quant_max"))
    by_rows = rewriter.values[ids["rows"]] == IntList((*(1 for _ in x.dims[:-1]), *x.dims[-1:]))
    immutable = all(map(rewriter.is_immutable, (ids["x"], *call.outs))) and rewriter.outputs.isdisjoint(call.outs)
    if limits not in LIMITS or not by_rows or not immutable:
        return None
    if isinstance(eps, Null):  # torchao's default
        return Double(float(np.finfo(np.float16 if x.host_dtype is DType.FLOAT16 else np.float32).smallest_normal))
    return eps if isinstance(eps, Double) else None


def _with_row_eps(rewriter: Rewriter, at: int, choice: Call, eps: Double) -> Call | None:
    """Return the layer at a step with the smallest scale instead of scales and zeros; None if another call is there."""
    call = fused_at(rewriter, at)
    if call is None:
        return None
    arguments = rewriter.arguments(call)
    source = rewriter.arguments(choice)["input"]
    if (arguments["x"], arguments["x_scales"], arguments["x_zeros"]) != (source, *choice.outs):
        return None
    changed = {**arguments, "x_scales": None, "x_zeros": None, "row_eps": eps}
    return rewriter.make(LINEAR_Q4, call.outs, call.origin, **changed)


# -- scales in f16 -----------------------------------------------------------------------------------------------------


# The scales of 4-bit weights, by ops.
GROUP_SCALES = {
    **dict.fromkeys((*PATTERN["groups"], *PATTERN["rows and groups"]), "weight_scales"),
    **dict.fromkeys((*PATTERN["channels"], *PATTERN["fused"]), "scales"),
}


def narrow_scales(graph: Graph) -> Graph:
    """Store the scales of 4-bit layers as f16 where that changes no bit: 4.5 bits for a weight instead of 5."""
    rewriter = Rewriter(graph)
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is None or call.name not in GROUP_SCALES:
            continue
        ids = rewriter.arguments(call)
        scales = rewriter.flatten([ids[GROUP_SCALES[call.name]]])
        has_four_bits = "format" not in ids or rewriter.values[ids["format"]] != String(INT8)
        if has_four_bits and all(rewriter.users[v] == [index] and _are_halves(rewriter, v) for v in scales):
            for value_id in scales:
                rewriter.values[value_id] = replace(tensor_spec(rewriter, value_id), dtype=DType.FLOAT16)
    return rewriter.result()


def _are_halves(rewriter: Rewriter, value_id: int) -> bool:
    """Return whether a value is a constant in f32 whose numbers f16 has as normal numbers, or 0.

    A device may take others for 0. Most constants that do not fit fail in their first piece.
    """
    spec = rewriter.values[value_id]
    if not isinstance(spec, TensorSpec) or spec.constant is None or not rewriter.is_immutable(value_id):
        return False
    if {spec.dtype, spec.constant.dtype} != {DType.FLOAT32}:
        return False
    least = np.finfo(np.float16).smallest_normal
    with np.errstate(over="ignore"):
        numbers = (np.frombuffer(part, np.float32) for part in spec.constant.pieces(PIECE_BYTES))
        return all(
            bool(((part == part.astype(np.float16)) & ((np.abs(part) >= least) | (part == 0))).all())
            for part in numbers
        )
