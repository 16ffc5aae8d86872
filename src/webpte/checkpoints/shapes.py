"""Name the parameters of a decoder and their shapes, from its architecture alone."""

from __future__ import annotations

from .architecture import Architecture, Experts
from .recipe import PER_LAYER_EMBEDDING

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(model: Architecture) -> Shapes:
    """Return the shapes of the parameters by name, as in `modules/`."""
    shapes: Shapes = {"tok_embeddings.weight": (model.vocab_size, model.dim)}
    for number, layer in enumerate(model.layers):
        block: Shapes
        if layer.taps:
            block = {f"conv.{name}.weight": (model.dim, model.dim) for name in ("gate_in", "gate_out", "value", "out")}
            block["conv.conv.weight"] = (layer.taps, 1, model.dim)
        elif layer.delta is not None:
            block = _delta(model, number)
        else:
            block = _attention(model, number)
        if layer.experts is not None:
            block |= _experts(model, layer.experts)
        dense, hidden_dim = layer.experts is None or layer.experts.shared, model.hidden_width(number)
        if dense and model.gated_mlp:
            block |= _linear("feed_forward.w1", hidden_dim, model.dim, model.mlp_bias)
        if dense:
            block |= _linear("feed_forward.w2", model.dim, hidden_dim, model.mlp_bias)
            block |= _linear("feed_forward.w3", hidden_dim, model.dim, model.mlp_bias)
        if model.activation == "xielu":
            block |= {"feed_forward.alpha_p": (1,), "feed_forward.alpha_n": (1,)}
        norms = ["attention_norm", "ffn_norm"] * model.pre_norms + [
            "post_attention_norm",
            "post_ffn_norm",
        ] * model.post_norms
        block |= {f"{norm}.weight": (model.dim,) for norm in norms}
        if model.per_layer_dim:
            block |= _linear("per_layer_gate", model.per_layer_dim, model.dim, False)
            block |= _linear("per_layer_out", model.dim, model.per_layer_dim, False)
            block["per_layer_out_norm.weight"] = (model.dim,)
        if model.layer_scales:
            block["scale.weight"] = (1,)
        shapes |= {f"layers.{number}.{name}": shape for name, shape in block.items()}
    if model.per_layer_dim:
        columns = model.n_layers * model.per_layer_dim
        shapes |= {
            f"{PER_LAYER_EMBEDDING}.weight": (model.vocab_size, columns),
            "per_layer_projection.weight": (columns, model.dim),
            "per_layer_norm.weight": (model.per_layer_dim,),
        }
    return shapes | {"norm.weight": (model.dim,), "output.weight": (model.vocab_size, model.dim)}


def _attention(model: Architecture, number: int) -> Shapes:
    width = model.head_width(number)
    wide, narrow = model.n_heads * width, model.n_kv_heads * width
    shapes = _linear("attention.wq", wide * 2 if model.query_gate else wide, model.dim, model.qkv_bias)
    own = model.layers[number].shares is None  # keys and values
    if own:
        shapes |= _linear("attention.wk", narrow, model.dim, model.qkv_bias)
        shapes |= _linear("attention.wv", narrow, model.dim, model.qkv_bias)
    shapes |= _linear("attention.wo", model.dim, wide, model.out_bias)
    if model.sinks:
        shapes["attention.sinks"] = (model.n_heads,)
    if model.qk_norm:
        shapes["attention.q_norm.weight"] = (width if model.qk_norm_by_head else wide,)
        if own:
            shapes["attention.k_norm.weight"] = (width if model.qk_norm_by_head else narrow,)
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
    bias = experts.linear_bias
    shapes = _linear("router", experts.count, model.dim, bias)
    if experts.biased:
        shapes["router.expert_bias"] = (experts.count,)
    if experts.shared_gate:
        shapes["shared_gate.weight"] = (1, model.dim)
    for number in range(experts.count):
        parts = {"w1": (experts.hidden_dim, model.dim), "w3": (experts.hidden_dim, model.dim)}
        parts["w2"] = (model.dim, experts.hidden_dim)
        for part, shape in parts.items():
            shapes |= _linear(f"experts.{number}.{part}", *shape, bias)
    return shapes


def _linear(name: str, rows: int, columns: int, bias: bool) -> Shapes:
    weight: Shapes = {f"{name}.weight": (rows, columns)}
    return weight | {f"{name}.bias": (rows,)} if bias else weight
