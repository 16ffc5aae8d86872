"""Name the parameters of a decoder and their shapes, from its architecture alone."""

from __future__ import annotations

from .architecture import Architecture, Experts

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(model: Architecture) -> Shapes:
    """Return the shapes of the parameters by name, as in `modules/`."""
    shapes: Shapes = {"tok_embeddings.weight": (model.vocab_size, model.dim)}
    gated = any(layer.delta is not None for layer in model.layers)  # Qwen3.5: attention has a gated output
    for number, layer in enumerate(model.layers):
        block: Shapes
        if layer.taps:
            block = {f"conv.{name}.weight": (model.dim, model.dim) for name in ("gate_in", "gate_out", "value", "out")}
            block["conv.conv.weight"] = (layer.taps, 1, model.dim)
        elif layer.delta is not None:
            block = _delta(model, number)
        else:
            block = _attention(model, gated)
        if layer.experts is not None:
            block |= _experts(model, layer.experts)
        dense = layer.experts is None or layer.experts.shared
        if dense and model.gated_mlp:
            block |= _linear("feed_forward.w1", model.hidden_dim, model.dim, model.mlp_bias)
        if dense:
            block |= _linear("feed_forward.w2", model.dim, model.hidden_dim, model.mlp_bias)
            block |= _linear("feed_forward.w3", model.hidden_dim, model.dim, model.mlp_bias)
        if model.activation == "xielu":
            block |= {"feed_forward.alpha_p": (1,), "feed_forward.alpha_n": (1,)}
        norms = ["attention_norm", "ffn_norm"] * model.pre_norms + [
            "post_attention_norm",
            "post_ffn_norm",
        ] * model.post_norms
        block |= {f"{norm}.weight": (model.dim,) for norm in norms}
        shapes |= {f"layers.{number}.{name}": shape for name, shape in block.items()}
    return shapes | {"norm.weight": (model.dim,), "output.weight": (model.vocab_size, model.dim)}


def _attention(model: Architecture, gated: bool) -> Shapes:
    wide, narrow = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    shapes = _linear("attention.wq", wide * 2 if gated else wide, model.dim, model.qkv_bias)
    shapes |= _linear("attention.wk", narrow, model.dim, model.qkv_bias)
    shapes |= _linear("attention.wv", narrow, model.dim, model.qkv_bias)
    shapes |= _linear("attention.wo", model.dim, wide, model.out_bias)
    if model.qk_norm:
        sizes = (model.head_dim, model.head_dim) if model.qk_norm_by_head else (wide, narrow)
        shapes |= {f"attention.{part}.weight": (size,) for part, size in zip(("q_norm", "k_norm"), sizes, strict=True)}
    return shapes


def _delta(model: Architecture, number: int) -> Shapes:
    sizes = model.layers[number].delta
    assert sizes is not None
    keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
    return {
        "attention.dt_bias": (sizes.value_heads,),
        "attention.A_log": (sizes.value_heads,),
        "attention.qkv.weight": (2 * keys + values, model.dim),
        "attention.gate.weight": (values, model.dim),
        "attention.strength.weight": (sizes.value_heads, model.dim),
        "attention.decay.weight": (sizes.value_heads, model.dim),
        "attention.conv.weight": (sizes.taps, 1, 2 * keys + values),
        "attention.head_norm.weight": (sizes.value_dim,),
        "attention.out.weight": (model.dim, values),
    }


def _experts(model: Architecture, experts: Experts) -> Shapes:
    shapes: Shapes = {"router.weight": (experts.count, model.dim)}
    if experts.biased:
        shapes["router.expert_bias"] = (experts.count,)
    if experts.shared_gate:
        shapes["shared_gate.weight"] = (1, model.dim)
    for number in range(experts.count):
        parts = {"w1": (experts.hidden_dim, model.dim), "w3": (experts.hidden_dim, model.dim)}
        parts["w2"] = (model.dim, experts.hidden_dim)
        shapes |= {f"experts.{number}.{part}.weight": shape for part, shape in parts.items()}
    return shapes


def _linear(name: str, rows: int, columns: int, bias: bool) -> Shapes:
    weight: Shapes = {f"{name}.weight": (rows, columns)}
    return weight | {f"{name}.bias": (rows,)} if bias else weight
