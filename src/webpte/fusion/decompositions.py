"""Recognize what an exporter has decomposed: positions, RMS norms, rotary embedding, attention with a KV cache.

XnnpackPartitioner leaves an op that XNNPACK lacks outside, and writes what the others consist of into many delegates.
Here the pieces become the calls that the other passes and the kernels know. Pieces without readers are removed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..graph import Call, Double, DType, Graph, Int, IntList, TensorSpec, Value, ValueList, normalize_dim, numel
from .rewriter import Rewriter, role_of, roles

PATTERN = {
    "item": ("_local_scalar_dense",),
    "select": ("aten.select_copy.int",),
    "symint": ("et_vk.select_as_symint.default",),
    "slice": ("aten.slice_copy.Tensor",),
    "cat": ("aten.cat.default",),
    "product": ("aten.mul.Tensor",),
    "sum": ("aten.add.Tensor",),
    "difference": ("aten.sub.Tensor",),
    "negative": ("aten.neg.default",),
    "power": ("aten.pow.Tensor_Scalar",),
    "mean": ("aten.mean.dim",),
    "rsqrt": ("aten.rsqrt.default",),
    "view": ("aten.view_copy.default",),
    "norm": ("et_vk.rms_norm.default",),
    "neighbours": ("et_vk.apply_rotary_emb.default",),
    "halves": ("et_vk.apply_rotary_emb_hf.default",),
    "update": ("update_cache.default",),
    "read": ("custom_sdpa.default",),
    "attention": ("sdpa_with_kv_cache.default",),
    "qparams": ("quantized_decomposed.choose_qparams_per_token_asymmetric.default",),
    "codes": ("quantized_decomposed.quantize_per_token.default",),
    "coded read": ("custom_quantized_sdpa.default",),
}
ROLES = roles(PATTERN)
WIDE = (DType.FLOAT64, DType.INT64)
ATTENTION, HALVES, NEIGHBOURS, NORM, SYMINT, VIEW = (
    PATTERN[role][0] for role in ("attention", "halves", "neighbours", "norm", "symint", "view")
)


def recompose(graph: Graph) -> Graph:
    """Return the graph with whole calls in place of their pieces."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    _read_positions(rewriter)
    _narrow_qparams(rewriter)
    _join_caches(rewriter)
    for index in range(len(rewriter.steps)):
        if (norm := _norm(rewriter, index)) is not None:
            rewriter.replace([index], norm, index)
    for index in range(len(rewriter.steps)):
        _rotate(rewriter, index)
    rewriter.drop_unread(ROLES)
    return rewriter.result()


def _piece(rewriter: Rewriter, value_id: int, *among: str) -> dict[str, int] | None:
    """Return the arguments of the call that computes a value, if it has one of these roles."""
    producer = rewriter.producer(value_id)
    if producer is None or role_of(producer[1], ROLES) not in among:
        return None
    return rewriter.arguments(producer[1])


def _unviewed(rewriter: Rewriter, value_id: int) -> int:
    """Return the value that another is only a view of."""
    while (producer := rewriter.producer(value_id)) is not None:
        source = rewriter.source(producer[1])
        if role_of(producer[1], ROLES) == "cat":  # of one tensor
            members = rewriter.flatten([rewriter.arguments(producer[1])["tensors"]])
            source = members[0] if len(members) == 1 else None
        if source is None or not rewriter.is_immutable(source):
            break
        value_id = source
    return value_id


def _dims(rewriter: Rewriter, value_id: int) -> tuple[int, ...]:
    spec = rewriter.values[value_id]
    return spec.dims if isinstance(spec, TensorSpec) else ()


def _int(rewriter: Rewriter, value_id: int, size: int) -> int | None:
    """Return a constant index into a dim, counted from its start. Past the end it is the size."""
    value = rewriter.values[value_id]
    if not isinstance(value, Int):
        return None
    return min(value.value + size if value.value < 0 else value.value, size)


def _is_one(rewriter: Rewriter, value_id: int) -> bool:
    return rewriter.values[value_id] in (Int(1), Double(1.0))


# -- positions ---------------------------------------------------------------------------------------------------------


def _read_positions(rewriter: Rewriter) -> None:
    """Let numbers out of an input be read from the input, so that no copy of it is computed and read back.

    Equal numbers become one value.
    """
    first: dict[tuple[int, int], int] = {}
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is None or role_of(call, ROLES) not in ("item", "symint"):
            continue
        element = _element(rewriter, call)
        if element is None:
            continue
        if element in first:
            rewriter.forward(index, first[element])
            continue
        first[element] = call.outs[0]
        source, place = element
        read = rewriter.make(SYMINT, call.outs, call.origin, x=source, dim=Int(0), index=Int(place))
        rewriter.replace([index], read, index)


def _element(rewriter: Rewriter, call: Call) -> tuple[int, int] | None:
    """Return the input of one dim and the index of the element that a number is; None if it is another."""
    arguments = rewriter.arguments(call)
    value_id, place = arguments.get("self", arguments.get("x", -1)), None
    if role_of(call, ROLES) == "symint":
        place = arguments["index"]
    elif (selected := _piece(rewriter, _unviewed(rewriter, value_id), "select")) is not None:
        value_id, place = selected["self"], selected["index"]
    value_id = _unviewed(rewriter, value_id)
    spec, dims = rewriter.values[value_id], _dims(rewriter, value_id)
    is_input = value_id in rewriter.graph.inputs and rewriter.is_immutable(value_id)
    if not isinstance(spec, TensorSpec) or not is_input or len(dims) != 1:
        return None
    if dims == (1,) and not spec.dynamic:
        return value_id, 0
    index = None if place is None else rewriter.values[place]
    return (value_id, index.value) if isinstance(index, Int) and index.value >= 0 else None


# -- quantized caches --------------------------------------------------------------------------------------------------


def _narrow_qparams(rewriter: Rewriter) -> None:
    """Declare scales and zero points of rows as f32 and int32, and let the device compute them and their readers.

    The op declares f64 and int64, but scales are rounded to f32, and zero points are codes.
    """
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is None or role_of(call, ROLES) != "qparams" or not rewriter.outputs.isdisjoint(call.outs):
            continue
        for out in call.outs:
            spec = rewriter.values[out]
            assert isinstance(spec, TensorSpec)
            rewriter.values[out] = replace(spec, host_dtype=spec.dtype)
        for step in {index, *(user for out in call.outs for user in rewriter.users[out])}:
            reader = rewriter.call(step)
            if reader is not None and reader.on_host and not _has_wide_numbers(rewriter, reader):
                rewriter.steps[step] = replace(reader, on_host=False)


def _has_wide_numbers(rewriter: Rewriter, call: Call) -> bool:
    """Return whether a call reads or writes numbers of 64 bits."""
    operands = (rewriter.values[v] for v in (*rewriter.flatten(call.args), *call.outs))
    return any(isinstance(spec, TensorSpec) and spec.host_dtype in WIDE for spec in operands)


# -- attention ---------------------------------------------------------------------------------------------------------


def _join_caches(rewriter: Rewriter) -> None:
    """Join the calls that write keys and values into caches with the attention that reads them."""
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is not None and call.kernel and role_of(call, ROLES) == "attention":  # of exports before 0.5
            rewriter.steps[index] = replace(call, name=ATTENTION, kernel=False)
        if call is None or role_of(call, ROLES) != "read":
            continue
        read = rewriter.arguments(call)
        writes = [cache_write(rewriter, read[cache], index, read["start_pos"]) for cache in ("key", "value")]
        if read["key"] == read["value"] or any(write is None for write in writes):
            continue
        (key_step, key), (value_step, value) = (write for write in writes if write is not None)
        if _dims(rewriter, key)[:2] != _dims(rewriter, read["query"])[:2]:
            continue
        same = ("start_pos", "attn_mask", "drpout_p", "is_causal", "scale")
        joined = rewriter.make(
            ATTENTION,
            call.outs,
            call.origin,
            query=read["query"],
            key=key,
            value=value,
            key_cache=read["key"],
            value_cache=read["value"],
            **{name: read[name] for name in same},
        )
        rewriter.replace([key_step, value_step, index], joined, index)


def cache_write(rewriter: Rewriter, cache: int, reader: int, start: int) -> tuple[int, int] | None:
    """Return the step that writes a cache for one reader, and what it writes."""
    spec, users = rewriter.values[cache], sorted(rewriter.users[cache])
    if not isinstance(spec, TensorSpec) or not spec.stored or len(spec.dims) != 4 or cache in rewriter.outputs:
        return None
    if len(users) != 2 or users[1] != reader or rewriter.producers.get(cache):
        return None
    call = rewriter.call(users[0])
    if (
        call is None
        or role_of(call, ROLES) != "update"
        or any(rewriter.users.get(o) or o in rewriter.outputs for o in call.outs)
    ):
        return None
    written = rewriter.arguments(call)
    fits = written["cache"] == cache and written["start_pos"] == start and rewriter.is_immutable(written["value"])
    return (users[0], written["value"]) if fits else None


# -- RMS norm ----------------------------------------------------------------------------------------------------------


def _norm(rewriter: Rewriter, index: int) -> Call | None:
    """Return x / sqrt(mean(x²) + eps) · weight as one call, if step `index` multiplies by the weight."""
    call = rewriter.call(index)
    if call is None or role_of(call, ROLES) != "product":
        return None
    for x_name, weight_name in (("self", "other"), ("other", "self")):
        arguments = rewriter.arguments(call)
        weight = arguments[weight_name]
        scaled = _piece(rewriter, arguments[x_name], "product")
        if scaled is None or not rewriter.is_immutable(weight):
            continue
        for source, root in ((scaled["self"], scaled["other"]), (scaled["other"], scaled["self"])):
            eps = _root_mean_square(rewriter, root, source)
            dims, out = _dims(rewriter, source), rewriter.values[call.outs[0]]
            if eps is None or _dims(rewriter, weight) != dims[-1:] or not _same_tensor(rewriter.values[source], out):
                continue
            return rewriter.make(NORM, call.outs, call.origin, x=source, weight=weight, eps=Double(eps))
    return None


def _same_tensor(one: object, other: object) -> bool:
    if not isinstance(one, TensorSpec) or not isinstance(other, TensorSpec):
        return False
    return (one.dtype, one.dims) == (other.dtype, other.dims)


def _root_mean_square(rewriter: Rewriter, value_id: int, x: int) -> float | None:
    """Return eps if a value is 1 / sqrt(mean(x²) + eps) over the last dim."""
    root = _piece(rewriter, value_id, "rsqrt")
    total = None if root is None else _piece(rewriter, root["self"], "sum")
    if total is None or not _is_one(rewriter, total["alpha"]) or not rewriter.is_immutable(x):
        return None
    eps, mean = _number(rewriter, total["other"]), _piece(rewriter, total["self"], "mean")
    if eps is None or mean is None or not _over_last(rewriter, mean):
        return None
    square = _piece(rewriter, mean["self"], "product", "power")
    if square is None or square["self"] != x:
        return None
    squared = square["other"] == x if "other" in square else _number(rewriter, square["exponent"]) == 2.0
    return eps if squared else None


def _over_last(rewriter: Rewriter, mean: dict[str, int]) -> bool:
    dims = rewriter.values[mean["dim"]]
    if isinstance(dims, ValueList):
        axes = [value.value for v in dims.ids if isinstance(value := rewriter.values[v], Int)]
    else:
        axes = list(dims.values) if isinstance(dims, IntList) else []
    rank = len(_dims(rewriter, mean["self"]))
    kept = getattr(rewriter.values[mean["keepdim"]], "value", False)
    return kept is True and len(axes) == 1 and normalize_dim(axes[0], rank) == rank - 1


def _number(rewriter: Rewriter, value_id: int) -> float | None:
    """Return the value of a constant number: a literal, or a tensor of one element."""
    value = rewriter.values[value_id]
    if isinstance(value, (Int, Double)):
        return float(value.value)
    if not isinstance(value, TensorSpec) or value.constant is None or numel(value.dims) != 1 or value.mutable:
        return None
    if not rewriter.is_immutable(value_id) or value.constant.rest:
        return None
    data = np.asarray(value.constant.dtype.from_bytes(bytes(value.constant.span.view())))
    return float(data.reshape(-1)[0])


# -- rotary embedding --------------------------------------------------------------------------------------------------


class Rotation(NamedTuple):
    """A matched rotary embedding (B, S, H, D): its input, its output, and tables with a row for each of S tokens."""

    role: str  # which elements pair up: "neighbors" or "halves"
    tables: tuple[int, int]  # of cosines and sines
    source: int
    joint: int  # the step that puts the rotated elements together, which is free after the rotation


class Turn(NamedTuple):
    """One product of a rotation: elements of a tensor times a table."""

    source: int
    part: int  # 0 and 1 are the elements of a pair
    table: int


def _rotate(rewriter: Rewriter, index: int) -> None:
    """Let one call rotate the query and the key of the attention at a step."""
    call, rotated = rewriter.call(index), _query_and_key(rewriter, index)
    if call is None or rotated is None or not rewriter.outputs.isdisjoint(rotated):
        return
    query, key = (_of_neighbours(rewriter, v) or _of_halves(rewriter, v) for v in rotated)
    if query is None or key is None or (query.role, query.tables) != (key.role, key.tables):
        return
    steps = [rewriter.producers[value_id][0] for value_id in rotated]
    readers = rewriter.users[rotated[1]]
    if len(readers) > 1 and all(role_of(rewriter.call(user), ROLES) == "attention" for user in readers):
        rotated = _with_own_key(rewriter, index, rotated, key.source)
        steps = steps[:1]
    if rotated is None or any(user <= max(steps) for value_id in rotated for user in rewriter.users[value_id]):
        return
    sources = [_shaped(rewriter, rotation, out) for rotation, out in zip((query, key), rotated, strict=True)]
    cosine, sine = query.tables
    name, further = (HALVES, {"start_pos": Int(0)}) if query.role == "halves" else (NEIGHBOURS, {})
    tables: dict[str, int | Value | None] = {"freqs_cos": cosine, "freqs_sin": sine, **further}
    rewriter.replace(
        steps, rewriter.make(name, rotated, call.origin, xq=sources[0], xk=sources[1], **tables), max(steps)
    )


def _with_own_key(rewriter: Rewriter, index: int, rotated: tuple[int, int], source: int) -> tuple[int, int] | None:
    """Return the query, and in place of a key that attentions over one cache share, one for the attention at a step."""
    query, key = rotated
    before = rewriter.producer(source)
    if before is None or before[0] > rewriter.producers[query][0] or _dims(rewriter, source) != _dims(rewriter, key):
        return None
    call, own = rewriter.call(index), rewriter.add(rewriter.values[key])
    assert call is not None
    rewriter.replace([index], replace(call, args=tuple(own if a == key else a for a in call.args)), index)
    return query, own


def _query_and_key(rewriter: Rewriter, index: int) -> tuple[int, int] | None:
    """Return the query and the key of the attention at a step, before they become codes."""
    call = rewriter.call(index)
    role = role_of(call, ROLES)
    if call is None or role not in ("attention", "coded read"):
        return None
    arguments = rewriter.arguments(call)
    if role == "attention":
        return arguments["query"], arguments["key"]
    write = cache_write(rewriter, arguments["key"], index, arguments["start_pos"])
    coded = [] if write is None else [_piece(rewriter, codes, "codes") for codes in (arguments["query"], write[1])]
    sources = [codes["input"] for codes in coded if codes is not None]
    return (sources[0], sources[1]) if len(sources) == 2 and sources[0] != sources[1] else None


def _shaped(rewriter: Rewriter, rotation: Rotation, like: int) -> int:
    """Return the source of a rotation with the shape of the result. Its view takes the place of the joint."""
    spec = rewriter.values[like]
    assert isinstance(spec, TensorSpec)
    if _dims(rewriter, rotation.source) == spec.dims:
        return rotation.source
    joint, shaped = rewriter.call(rotation.joint), rewriter.add(spec)
    assert joint is not None
    size = IntList((spec.dims[0], -1, *spec.dims[2:]))
    view = rewriter.make(VIEW, (shaped,), joint.origin, self=rotation.source, size=size)
    rewriter.replace([rotation.joint], view, rotation.joint)
    return shaped


def _of_neighbours(rewriter: Rewriter, value_id: int) -> Rotation | None:
    """Return the rotation whose pairs are neighbors: parts are stacked along a last dim of 2, which a view removes."""
    dims, whole = _dims(rewriter, value_id), _unviewed(rewriter, value_id)
    parts = _joined(rewriter, whole)
    if len(dims) != 4 or len(parts) != 2 or rewriter.only_user(whole) is None:
        return None
    pairs = (*dims[:3], dims[3] // 2)
    if _dims(rewriter, whole) != (*pairs, 2):
        return None
    first = _turns(rewriter, parts[0], "difference", pairs)
    second = _turns(rewriter, parts[1], "sum", pairs)
    if first is None or second is None:
        return None
    (source, _, cosine), (_, _, sine) = first
    if first != [Turn(source, 0, cosine), Turn(source, 1, sine)]:
        return None
    if sorted(second) != [Turn(source, 0, sine), Turn(source, 1, cosine)]:
        return None
    return Rotation("neighbours", (cosine, sine), _unviewed(rewriter, source), rewriter.producers[whole][0])


def _of_halves(rewriter: Rewriter, value_id: int) -> Rotation | None:
    """Return the rotation x · cos + (-second half, first half) · sin."""
    dims, total = _dims(rewriter, value_id), _unviewed(rewriter, value_id)
    turns = _turns(rewriter, total, "sum", dims) if len(dims) == 4 else None
    if turns is None or _dims(rewriter, total) != dims:
        return None
    (source, _, cosine), (_, _, sine) = turns = sorted(turns, key=lambda turn: turn.part)
    if turns != [Turn(source, 0, cosine), Turn(source, 1, sine)] or not rewriter.is_immutable(source):
        return None
    return Rotation("halves", (cosine, sine), source, rewriter.producers[total][0])


def _joined(rewriter: Rewriter, value_id: int) -> list[int]:
    """Return the tensors that a value joins along its last dim."""
    joined = _piece(rewriter, value_id, "cat")
    rank = len(_dims(rewriter, value_id))
    if joined is None or _int(rewriter, joined["dim"], rank) != rank - 1:
        return []
    return rewriter.flatten([joined["tensors"]])


def _turns(rewriter: Rewriter, value_id: int, role: str, dims: tuple[int, ...]) -> list[Turn] | None:
    """Return the two products that a value is the sum or the difference of."""
    total = _piece(rewriter, _unviewed(rewriter, value_id), role)
    if total is None or not _is_one(rewriter, total["alpha"]):
        return None
    products = [_piece(rewriter, total[name], "product") for name in ("self", "other")]
    turns = [turn for product in products if product is not None and (turn := _turn(rewriter, product, dims))]
    return turns if len(turns) == 2 else None


def _turn(rewriter: Rewriter, product: dict[str, int], dims: tuple[int, ...]) -> Turn | None:
    """Return a product of a part (B, S, H, D) and a table (S, D) that broadcasts."""
    for x, table in ((product["self"], product["other"]), (product["other"], product["self"])):
        shape = _dims(rewriter, table)
        if _dims(rewriter, x) != dims or (1,) * (4 - len(shape)) + shape != (1, dims[1], 1, dims[3]):
            continue
        rows = _unviewed(rewriter, table)
        if _dims(rewriter, rows) == (dims[1], dims[3]) and rewriter.is_immutable(rows):
            return Turn(*(_pair_element(rewriter, x, dims) or _half_turn(rewriter, x, dims)), rows)
    return None


def _pair_element(rewriter: Rewriter, value_id: int, dims: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the tensor (..., 2) and the index along its last dim that a value is."""
    piece = _slice_of(rewriter, _unviewed(rewriter, value_id))
    if piece is None or _dims(rewriter, piece.source) != (*dims, 2) or piece.stop != piece.start + 1:
        return None
    return piece.source, piece.start


def _half_turn(rewriter: Rewriter, value_id: int, dims: tuple[int, ...]) -> tuple[int, int]:
    """Return x and 1 if a value is (-second half, first half) of x, else the value and 0."""
    halves = _joined(rewriter, _unviewed(rewriter, value_id))
    negative = _piece(rewriter, halves[0], "negative") if len(halves) == 2 else None
    if negative is None:
        return value_id, 0
    second, first = _slice_of(rewriter, negative["self"]), _slice_of(rewriter, halves[1])
    if second is None or first is None or _dims(rewriter, first.source) != dims:
        return value_id, 0
    middle, width = dims[3] // 2, dims[3]
    if (first, second) != (LastDimSlice(first.source, 0, middle), LastDimSlice(first.source, middle, width)):
        return value_id, 0
    return first.source, 1


class LastDimSlice(NamedTuple):
    """x[..., start:stop]."""

    source: int
    start: int
    stop: int


def _slice_of(rewriter: Rewriter, value_id: int) -> LastDimSlice | None:
    """Return the slice along the last dim, or the one element of it, that a value is."""
    taken = _piece(rewriter, value_id, "slice", "select")
    if taken is None or not rewriter.is_immutable(taken["self"]):
        return None
    dims = _dims(rewriter, taken["self"])
    if _int(rewriter, taken["dim"], len(dims)) != len(dims) - 1:
        return None
    if "index" in taken:
        index = _int(rewriter, taken["index"], dims[-1])
        return None if index is None else LastDimSlice(taken["self"], index, index + 1)
    start, stop = (_int(rewriter, taken[name], dims[-1]) for name in ("start", "end"))
    if start is None or stop is None or rewriter.values[taken["step"]] != Int(1):
        return None
    return LastDimSlice(taken["self"], start, stop)
