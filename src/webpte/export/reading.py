"""What the files of every decoder say, in config.json and in GGUF; families read what is their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..errors import FormatError
from .architecture import MAX_LAYERS, Architecture, Layer, Rope
from .fields import Fields
from .rope_fields import read_rope, scaled_rope


def decoder_config(
    fields: Fields,
    *,
    tied: bool = False,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    theta: float = 10000.0,
    partial: bool = False,
    share: float = 1.0,
    rope_aliases: Mapping[str, str] | None = None,
    ropes: Callable[[Fields, int], Mapping[str, Rope]] | None = None,  # of a model that has several
    activation: str = "silu",
    rope_harmless: tuple[str, ...] = (),
    norm_eps: str = "rms_norm_eps",
    hidden_dim: int | None = None,
) -> Architecture:
    """A Llama's, from config.json. Defaults are those transformers has where a file leaves a field out.

    `norm_eps` is what the family calls it; `hidden_dim` is given where it is not intermediate_size.
    """
    fields.need("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", norm_eps)
    if hidden_dim is None:
        fields.need("intermediate_size")
    dim, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    if head_dim is None and fields.get("head_dim") is None and dim % heads:
        raise FormatError(f"{fields.where}: {heads} heads of a width of {dim} are {dim / heads:g} wide; say head_dim")
    size = fields.whole("head_dim", head_dim or dim // heads or None)
    _check_activation(fields, activation)
    if ropes is None:
        rope = read_rope(
            fields, size, theta=theta, partial=partial, share=share, aliases=rope_aliases, harmless=rope_harmless
        )
    return Architecture(
        dim=dim,
        n_heads=heads,
        n_kv_heads=fields.whole("num_key_value_heads", kv_heads or heads),
        head_dim=size,
        hidden_dim=hidden_dim or fields.whole("intermediate_size"),
        vocab_size=fields.whole("vocab_size"),
        norm_eps=fields.real(norm_eps),
        layers=(Layer(),) * fields.whole("num_hidden_layers", most=MAX_LAYERS),
        ropes={"rope": rope} if ropes is None else ropes(fields, size),
        tied=fields.flag("tie_word_embeddings", tied),
        activation=activation,
    )


def _check_activation(fields: Fields, activation: str) -> None:
    names = {"silu": ("silu", "swish"), "gelu_tanh": ("gelu_pytorch_tanh",)}[activation]
    for field in ("hidden_act", *(["hidden_activation"] if activation != "silu" else [])):
        if fields.get(field, names[0]) not in names:
            fields.refuse(field, f"another activation than {names[0]}")


def attention_windows(fields: Fields, count: int, sliding: list[bool], default: int | None = None) -> list[int | None]:
    """How many tokens each layer sees, for models that switch windows on with `use_sliding_window`.

    `sliding` are the layers that slide where `layer_types` does not say so.
    """
    names = ["sliding_attention" if slides else "full_attention" for slides in sliding]
    told = fields.get("sliding_window", default if "sliding_window" not in fields.values else None)  # null is none
    window = None if told is None else fields.whole("sliding_window", default)
    used = fields.flag("use_sliding_window") and window is not None
    kinds = fields.get("layer_types", names if used else ["full_attention"] * count)
    if not isinstance(kinds, list) or len(kinds) != count:
        raise fields.wrong("layer_types", kinds, f"a list of {count} names")
    known = ("full_attention", "sliding_attention") if used else ("full_attention",)
    if any(kind not in known for kind in kinds):
        fields.refuse("layer_types", "some layers do not attend to all tokens")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def decoder_gguf(fields: Fields, *, theta: float = 10000.0) -> Architecture:
    """A Llama's, from the keys of a GGUF file under its architecture's name."""
    eps = "attention.layer_norm_rms_epsilon"
    fields.need("embedding_length", "block_count", "attention.head_count", "feed_forward_length", eps)
    fields.under("tokenizer.ggml.").need("tokens", "model")
    dim, heads = fields.whole("embedding_length"), fields.whole("attention.head_count")
    size = fields.whole("attention.key_length", dim // heads or None)
    if fields.whole("attention.value_length", size) != size:
        fields.refuse("attention.value_length", f"values of another size than keys, {size}")
    return Architecture(
        dim=dim,
        n_heads=heads,
        n_kv_heads=fields.whole("attention.head_count_kv", heads),
        head_dim=size,
        hidden_dim=fields.whole("feed_forward_length"),
        vocab_size=len(fields.under("").list_of("tokenizer.ggml.tokens", str)),
        norm_eps=fields.real(eps),
        layers=(Layer(window=_gguf_window(fields)),) * fields.whole("block_count", most=MAX_LAYERS),
        ropes={"rope": _gguf_rope(fields, size, theta)},
    )


def _gguf_window(fields: Fields) -> int | None:
    return fields.whole("attention.sliding_window") if fields.get("attention.sliding_window") else None


def _gguf_rope(fields: Fields, size: int, theta: float) -> Rope:
    """Divisors of frequencies, such as Llama 3's, are stored as a tensor, which the reader shows as a field."""
    rope = Rope(fields.real("rope.freq_base", theta), fields.whole("rope.dimension_count", size))
    if rope.theta <= 1:
        raise fields.wrong("rope.freq_base", rope.theta, "a number above 1")
    kind, tensors = fields.get("rope.scaling.type", "none"), fields.under("")
    if tensors.get("rope_freqs.weight") is not None:
        rope = replace(rope, divisors=tensors.reals("rope_freqs.weight"))
    if kind == "none":
        return rope
    if kind not in ("linear", "yarn") or rope.divisors is not None:
        fields.refuse("rope.scaling.type", "other rotary frequencies than are known here: none, linear, yarn")
        return rope
    told = {"factor": fields.get("rope.scaling.factor")}
    if kind == "yarn":
        told["original_max_position_embeddings"] = fields.get("rope.scaling.original_context_length")
    return scaled_rope(kind, rope, Fields(f"{fields.where}: rope.scaling", told))
