"""Take the quantization of keys and values that an exporter wrote around attention into the attention itself."""

from __future__ import annotations

from ..graph import Bool, Call, DType, Graph, Int, TensorSpec
from .decompositions import ATTENTION, cache_write
from .rewriter import Rewriter, role_of, roles

PATTERN = {
    "read": ("custom_quantized_sdpa.default",),
    "codes": ("quantized_decomposed.quantize_per_token.default",),
    "qparams": ("quantized_decomposed.choose_qparams_per_token_asymmetric.default",),
    "cast": ("aten._to_copy.default",),
}
ROLES = roles(PATTERN)
CODE_LIMITS = (Int(-128), Int(127))


def own_quantized_caches(graph: Graph) -> Graph:
    """Let attention over caches of codes take floats, and have a cache of int8 for keys and one for values.

    The caches of scales and zero points vanish: how an int8 cache stores a row is up to the attention that owns it.
    """
    rewriter = Rewriter(graph)
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        if call is not None and role_of(call, ROLES) == "read":
            _take_floats(rewriter, index, call)
    for index in reversed(range(len(rewriter.steps))):
        call = rewriter.call(index)
        if role_of(call, ROLES) in ("codes", "qparams", "cast") and call is not None and _is_unread(rewriter, call):
            rewriter.drop(index)
    return rewriter.result()


def _take_floats(rewriter: Rewriter, index: int, call: Call) -> None:
    read = rewriter.arguments(call)
    steps, sources = [index], [_source(rewriter, read["query"], read["q_scales"], read["q_zero_points"])]
    for cache, short in (("key", "k"), ("value", "v")):
        caches = (read[cache], read[f"{short}_scales"], read[f"{short}_zero_points"])
        writes = [cache_write(rewriter, stored, index, read["start_pos"]) for stored in caches]
        written = [write for write in writes if write is not None]
        if len(written) != 3:
            return
        steps += [step for step, _ in written]
        codes, scales, zeros = (value_id for _, value_id in written)
        sources.append(_source(rewriter, codes, scales, zeros))
    query, key, value = sources
    if query is None or key is None or value is None or rewriter.values[read["is_seq_at_dim_2"]] != Bool(False):
        return
    same = ("start_pos", "attn_mask", "drpout_p", "is_causal", "scale")
    joined = rewriter.make(
        ATTENTION,
        call.outs,
        call.origin,
        query=query,
        key=key,
        value=value,
        key_cache=read["key"],
        value_cache=read["value"],
        **{name: read[name] for name in same},
    )
    rewriter.replace(steps, joined, index)


def _source(rewriter: Rewriter, codes: int, scales: int, zeros: int) -> int | None:
    """Return the floats that a value has the codes of, if all three were computed from them row by row."""
    quantized, spec = rewriter.producer(codes), rewriter.values[codes]
    if quantized is None or role_of(quantized[1], ROLES) != "codes" or not isinstance(spec, TensorSpec):
        return None
    arguments = rewriter.arguments(quantized[1])
    limits = tuple(rewriter.values[arguments[name]] for name in ("quant_min", "quant_max"))
    chosen = rewriter.producer(arguments["scales"])
    if spec.dtype is not DType.INT8 or limits != CODE_LIMITS or chosen is None:
        return None
    source = arguments["input"]
    rows = (arguments["scales"], arguments["zero_points"])
    fits = role_of(chosen[1], ROLES) == "qparams" and rewriter.arguments(chosen[1])["input"] == source
    stored = (_uncast(rewriter, scales), _uncast(rewriter, zeros))
    return source if fits and chosen[1].outs == rows == stored and rewriter.is_immutable(source) else None


def _uncast(rewriter: Rewriter, value_id: int) -> int:
    """Return the value that another is a conversion of."""
    producer = rewriter.producer(value_id)
    if producer is None or role_of(producer[1], ROLES) != "cast":
        return value_id
    return rewriter.arguments(producer[1])["self"]


def _is_unread(rewriter: Rewriter, call: Call) -> bool:
    return not any(rewriter.users.get(out) or out in rewriter.outputs for out in call.outs)
