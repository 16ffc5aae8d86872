"""Read config.json and GGUF keys into an `Architecture`.

The set of fields is closed: a field is read, known to have no effect, or refused by name (see `webpte.fields`). A model
that is wrong by a few percent still produces fluent text, so an unknown field is never skipped. No value of an unknown
field is accepted but null and empty ones, also not `false` and 0: `use_rope: false` would switch off rotary embeddings,
which are on here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import FormatError, UnsupportedError
from ..fields import FieldRule as FieldRule
from ..fields import ReadFields, as_json
from .architecture import MAX_LAYERS, Architecture, LayerSpec, Rope

MAX_DIM_SIZE = 1 << 20  # of hidden sizes, layers and vocabularies
MAX_CONTEXT_TOKENS = 1 << 40  # used in formulas only: no memory is allocated for it
MAX_TOKEN_ID = (1 << 31) - 1
MIN_NUMBER, MAX_NUMBER = 1e-30, 1.001e30  # limits of factors: products of larger ones would not be finite


class Fields(ReadFields):
    """The fields of one checkpoint, by name, with their types.

    Code that reads a field accepts every value of it. `refuse_unread` checks the fields that were not read.
    """

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        super().__init__(where, values)
        self._refused: dict[str, str] = {}

    def with_prefix(self, prefix: str) -> Fields:
        """Return the same fields, named without a common prefix."""
        view = copy.copy(self)
        view.prefix = prefix
        return view

    def require(self, *names: str) -> None:
        """Raise an error that lists the fields of these names that are missing."""
        if missing := [self.prefix + name for name in names if self.get(name) is None]:
            raise FormatError(f"{self.where}: missing field {', '.join(missing)}", code="missing_field")

    def integer(self, name: str, default: int | None = None, maximum: int = MAX_DIM_SIZE) -> int:
        """Return an integer from 1 to `maximum`."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
            raise self.invalid(name, value, f"an integer from 1 to {maximum}")
        return value

    def context(self, name: str) -> int | None:
        """Return the context that a model was trained for, or None if the field is absent."""
        return None if self.get(name) is None else self.integer(name, maximum=MAX_CONTEXT_TOKENS)

    def token_id(self, name: str) -> int | None:
        """Return a token id, or None if the field is absent."""
        value = self.get(name)
        if value is not None and not is_token_id(value):
            raise self.invalid(name, value, "a token id")
        return value  # type: ignore[no-any-return]

    def string(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.invalid(name, value, "a string")
        return value

    def list_of(self, name: str, *types: type) -> list[Any]:
        """Return a list whose elements have these types; empty if the field is absent."""
        value = self.get(name, [])
        if not isinstance(value, list) or not all(type(element) in types for element in value):
            raise self.invalid(name, value, f"a list of {' or '.join(each.__name__ for each in types)}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number above 0."""
        value = self.get(name, default)
        if not _is_factor(value):
            raise self.invalid(name, value, f"a number from {MIN_NUMBER:g} to {MAX_NUMBER:g}")
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.invalid(name, value, "true or false")
        return value

    def layers(self, name: str, default: int | None = None) -> int:
        """Return a number of layers. Each costs time and memory before the weights are looked at."""
        return self.integer(name, default, MAX_LAYERS)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object; empty if the field is absent."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise self.invalid(name, value, "an object")
        return value

    def part(self, name: str) -> Fields:
        """Return the fields of an object; none if it is absent."""
        return Fields(f"{self.where}: {self.prefix}{name}", self.mapping(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list of numbers above 0."""
        value = self.get(name)
        if not isinstance(value, list | tuple) or not all(map(_is_factor, value)):
            raise self.invalid(name, value, "a list of numbers above 0")
        return tuple(float(number) for number in value)

    def invalid(self, name: str, value: Any, expected: str) -> FormatError:
        """Return the error of a field with an invalid value."""
        return FormatError(
            argument=f"{self.where}: {self.prefix}{name}", expected=expected, got=as_json(value), code="invalid_field"
        )

    def refuse(self, name: str, effect: str) -> None:
        """Add a field to the error of `refuse_unread`; `effect` says what the field changes."""
        self._read.add(self.prefix + name)
        self._refused[self.prefix + name] = (
            f"{self.prefix}{name} = {as_json(self.values.get(self.prefix + name))}: {effect}"
        )

    def refuse_unread(self, ignored: Callable[[str], bool], rules: Mapping[str, FieldRule], hint: str = "") -> None:
        """Raise one error that lists every field that changes what is computed; `ignored` fields have no effect."""
        unread = self.unread(ignored, rules)
        refused = self._refused | unread
        if not refused:
            return
        count = "a field that is" if len(refused) == 1 else f"{len(refused)} fields that are"
        lines = [f"{self.where} has {count} not supported:", *(f"  {line}" for line in refused.values())]
        unknown = any(name not in rules for name in unread)
        raise UnsupportedError(
            "\n".join(lines + [hint] * (unknown and bool(hint))), list(refused), code="unsupported_field"
        )


def is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and MIN_NUMBER <= value <= MAX_NUMBER


_ANY = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
_MAX_FACTOR = 1e9  # of YaRN: its inverse is added to 1 and must not vanish
_ORIGINAL = "original_max_position_embeddings"


def read_rope(
    fields: Fields,
    head_dim: int,
    *,
    theta: float = 10000.0,
    partial: bool = False,
    share: float = 1.0,
    aliases: Mapping[str, str] | None = None,
    ignored: tuple[str, ...] = (),
) -> Rope:
    """Return the rotary settings of config.json. `refuse_unread` reports settings that are not supported.

    With `partial`, transformers rotates only a part of each head of this model; `share` is its default. Settings in
    `ignored` have no effect for this model.
    """
    name, settings = _settings(fields)
    base = _once(fields, name, settings, "rope_theta", theta)
    if base <= 1:
        raise fields.invalid("rope_theta", base, "a number above 1")
    share = _once(fields, name, settings, "partial_rotary_factor", share)
    if share > 1:
        raise fields.invalid("partial_rotary_factor", share, "a number of at most 1")
    rope = Rope(base, int(head_dim * share))
    if share != 1 and not partial:
        where = name if "partial_rotary_factor" in settings else "partial_rotary_factor"
        fields.refuse(where, "only a part of each head is rotated")
        return rope
    kind = settings.get("rope_type", settings.get("type", "default"))
    kind = (aliases or {}).get(kind, kind) if isinstance(kind, str) else None
    if kind not in KINDS:
        fields.refuse(name, f"rotary frequencies other than {', '.join(KINDS)}")
        return rope
    names, make = KINDS[kind]
    if unknown := [
        key for key, value in settings.items() if value is not None and key not in (*_ANY, *names, *ignored)
    ]:
        fields.refuse(name, f"unknown rotary setting {', '.join(unknown)}")
        return rope
    inner = Fields(f"{fields.where}: {name}", settings)
    return make(rope, inner, fields)


def scaled_rope(kind: str, rope: Rope, settings: Fields) -> Rope:
    """Return a rope scaled by settings alone, without a config.json, as in GGUF."""
    return KINDS[kind][1](rope, settings, settings)


def _settings(fields: Fields) -> tuple[str, dict[str, Any]]:
    """Return the settings and their name: rope_scaling in older versions of transformers, rope_parameters in newer."""
    settings = {name: fields.get(name) for name in ("rope_scaling", "rope_parameters") if fields.get(name)}
    for name, value in settings.items():
        if not isinstance(value, dict):
            fields.refuse(name, "rotary frequencies other than the default")
            return name, {}
    if len(settings) == 2 and settings["rope_scaling"] != settings["rope_parameters"]:
        raise FormatError(f"{fields.where}: rope_scaling and rope_parameters differ", code="contradiction")
    return next(iter(settings.items()), ("rope_parameters", {}))


def _once(fields: Fields, name: str, settings: Mapping[str, Any], key: str, default: float) -> float:
    """Return a number that is one of the rotary settings, or a field of config.json itself."""
    both = {key: fields.get(key), f"{name}.{key}": settings.get(key)}
    values = {where: value for where, value in both.items() if value is not None}
    if any(value != next(iter(values.values())) for value in values.values()):
        differing = ", ".join(f"{where} is {value}" for where, value in values.items())
        raise FormatError(f"{fields.where}: {differing}; expected equal values", code="contradiction")
    return Fields(fields.where, values).number(next(iter(values), key), default)


# -- rope types: settings -> divisors of frequencies --------------------------------------------------


def _default(rope: Rope, settings: Fields, config: Fields) -> Rope:
    return rope


def _linear(rope: Rope, settings: Fields, config: Fields) -> Rope:
    return replace(rope, divisors=(settings.number("factor"),) * (rope.width // 2))


def _llama3(rope: Rope, settings: Fields, config: Fields) -> Rope:
    """Divide low frequencies by the factor, keep high ones, and interpolate between."""
    factor, low, high = (settings.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = settings.integer(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT_TOKENS)
    if low >= high:
        raise FormatError(
            argument=f"{settings.where}: high_freq_factor",
            expected=f"a number above low_freq_factor, {low:g}",
            got=f"{high:g}",
            code="invalid_field",
        )
    divisors = []
    for frequency in _frequencies(rope):
        turns = original * frequency / (2 * math.pi)  # in the original context
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return replace(rope, divisors=tuple(divisors))


def _yarn(rope: Rope, settings: Fields, config: Fields) -> Rope:
    """Return YaRN's scaling: as Llama 3's, but by the index of a pair instead of its frequency, and amplified."""
    original = settings.integer(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT_TOKENS)
    factor = settings.number(
        "factor", config.integer("max_position_embeddings", original, MAX_CONTEXT_TOKENS) / original
    )
    if factor > _MAX_FACTOR:
        raise settings.invalid("factor", factor, f"a number of at most {_MAX_FACTOR:g}")
    low, high = (
        rope.width * math.log(original / (settings.number(name, turns) * 2 * math.pi)) / (2 * math.log(rope.theta))
        for name, turns in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    if settings.boolean("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.width - 1)
    high = high + 0.001 if low == high else high
    ramp = [min(1.0, max(0.0, (pair - low) / (high - low))) for pair in range(rope.width // 2)]
    amplitude = settings.number("attention_factor", _yarn_amplitude(settings, factor))
    return replace(rope, divisors=tuple(1 / (part / factor + 1 - part) for part in ramp), amplitude=amplitude)


def _yarn_amplitude(settings: Fields, factor: float) -> float:
    def grown(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return grown(settings.number("mscale")) / grown(settings.number("mscale_all_dim"))
    return grown(1.0)


def _longrope(rope: Rope, settings: Fields, config: Fields) -> Rope:
    """Return LongRoPE's divisors: one set for contexts up to the original length, one for longer ones."""
    if config.get(_ORIGINAL) is None:  # transformers prefers the field of config.json, which Phi has
        original = settings.integer(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT_TOKENS)
    else:
        original = config.integer(_ORIGINAL, maximum=MAX_CONTEXT_TOKENS)
    if original < 2:
        raise settings.invalid(_ORIGINAL, original, "a number above 1")
    factor = settings.number(
        "factor", config.integer("max_position_embeddings", original, MAX_CONTEXT_TOKENS) / original
    )
    amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return replace(
        rope,
        divisors=settings.numbers("short_factor"),
        long_divisors=settings.numbers("long_factor"),
        original=original,
        amplitude=settings.number("attention_factor", amplitude),
    )


_YARN = ("factor", _ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
KINDS: dict[str, tuple[tuple[str, ...], Callable[[Rope, Fields, Fields], Rope]]] = {
    "default": ((), _default),
    "linear": (("factor",), _linear),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL), _llama3),
    "yarn": (_YARN, _yarn),
    "longrope": (("short_factor", "long_factor", "factor", "attention_factor", _ORIGINAL), _longrope),
}


def _frequencies(rope: Rope) -> list[float]:
    return [rope.theta ** (-2 * pair / rope.width) for pair in range(rope.width // 2)]


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
    ropes: Callable[[Fields, int], Mapping[str, Rope]] | None = None,  # of a model with several ropes
    activation: str = "silu",
    rope_ignored: tuple[str, ...] = (),
    norm_eps: str = "rms_norm_eps",
    hidden_dim: int | None = None,
) -> Architecture:
    """Read the fields of config.json that all decoders have. Defaults are those of transformers.

    `norm_eps` is the family's name of that field. `hidden_dim` replaces intermediate_size.
    """
    fields.require("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", norm_eps)
    if hidden_dim is None:
        fields.require("intermediate_size")
    dim, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if head_dim is None and fields.get("head_dim") is None and dim % heads:
        raise FormatError(
            argument=f"{fields.where}: hidden_size",
            expected=f"a multiple of num_attention_heads, {heads}",
            got=dim,
            code="head_dim",
            hint="Add head_dim to the file.",
        )
    size = fields.integer("head_dim", head_dim or dim // heads or None)
    _check_activation(fields, activation)
    if ropes is None:
        rope = read_rope(
            fields, size, theta=theta, partial=partial, share=share, aliases=rope_aliases, ignored=rope_ignored
        )
    return Architecture(
        dim=dim,
        n_heads=heads,
        n_kv_heads=fields.integer("num_key_value_heads", kv_heads or heads),
        head_dim=size,
        hidden_dim=hidden_dim or fields.integer("intermediate_size"),
        vocab_size=fields.integer("vocab_size"),
        norm_eps=fields.number(norm_eps),
        layers=(LayerSpec(),) * fields.layers("num_hidden_layers"),
        ropes={"rope": rope} if ropes is None else ropes(fields, size),
        tied=fields.boolean("tie_word_embeddings", tied),
        activation=activation,
    )


def _check_activation(fields: Fields, activation: str) -> None:
    names = {"silu": ("silu", "swish"), "gelu_tanh": ("gelu_pytorch_tanh",)}.get(activation, (activation,))
    for field in ("hidden_act", *(["hidden_activation"] if activation != "silu" else [])):
        if fields.get(field, names[0]) not in names:
            fields.refuse(field, f"an activation other than {names[0]}")


def attention_windows(fields: Fields, count: int, sliding: list[bool], default: int | None = None) -> list[int | None]:
    """Return the attention window of each layer, for models that enable windows with `use_sliding_window`.

    `sliding` says which layers have a window if the file has no `layer_types`.
    """
    names = ["sliding_attention" if slides else "full_attention" for slides in sliding]
    # A null sliding_window means no window; an absent one means the default.
    size = fields.get("sliding_window", default if "sliding_window" not in fields.values else None)
    window = None if size is None else fields.integer("sliding_window", default)
    used = fields.boolean("use_sliding_window") and window is not None
    kinds = fields.get("layer_types", names if used else ["full_attention"] * count)
    if not isinstance(kinds, list) or len(kinds) != count:
        raise fields.invalid("layer_types", kinds, f"a list of {count} names")
    supported = ("full_attention", "sliding_attention") if used else ("full_attention",)
    if any(kind not in supported for kind in kinds):
        fields.refuse("layer_types", "some layers do not attend to all tokens")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def decoder_gguf(
    fields: Fields,
    *,
    theta: float = 10000.0,
    kv_heads: int | None = None,
    hidden_dim: int | None = None,
    truncate: bool = True,
) -> Architecture:
    """Return the architecture of a Llama from the keys of a GGUF file, which begin with the architecture's name.

    `kv_heads` replaces attention.head_count_kv, `hidden_dim` feed_forward_length. Without `truncate`, YaRN's range is
    not rounded to whole pairs; GGUF has no key for it.
    """
    eps = "attention.layer_norm_rms_epsilon"
    fields.require("embedding_length", "block_count", "attention.head_count", "feed_forward_length", eps)
    fields.with_prefix("tokenizer.ggml.").require("tokens", "model")
    dim, heads = fields.integer("embedding_length"), fields.integer("attention.head_count")
    size = fields.integer("attention.key_length", dim // heads or None)
    if fields.integer("attention.value_length", size) != size:
        fields.refuse("attention.value_length", f"values of another size than keys, {size}")
    return Architecture(
        dim=dim,
        n_heads=heads,
        n_kv_heads=kv_heads or fields.integer("attention.head_count_kv", heads),
        head_dim=size,
        hidden_dim=hidden_dim or fields.integer("feed_forward_length"),
        vocab_size=len(fields.with_prefix("").list_of("tokenizer.ggml.tokens", str)),
        norm_eps=fields.number(eps),
        layers=(LayerSpec(window=_gguf_window(fields)),) * fields.layers("block_count"),
        ropes={"rope": _gguf_rope(fields, size, theta, truncate)},
    )


_GGUF_YARN = {
    _ORIGINAL: "original_context_length",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
    "mscale_all_dim": "yarn_log_multiplier",
}


def _gguf_window(fields: Fields) -> int | None:
    return fields.integer("attention.sliding_window") if fields.get("attention.sliding_window") else None


def _gguf_rope(fields: Fields, size: int, theta: float, truncate: bool) -> Rope:
    """Read the rotary keys of GGUF. Divisors of frequencies, such as those of Llama 3, are a tensor."""
    rope = Rope(fields.number("rope.freq_base", theta), fields.integer("rope.dimension_count", size))
    if rope.theta <= 1:
        raise fields.invalid("rope.freq_base", rope.theta, "a number above 1")
    kind, tensors = fields.get("rope.scaling.type", "none"), fields.with_prefix("")
    if tensors.get("rope_freqs.weight") is not None:
        rope = replace(rope, divisors=tensors.numbers("rope_freqs.weight"))
    if kind == "none":
        return rope
    if kind not in ("linear", "yarn") or rope.divisors is not None:
        fields.refuse("rope.scaling.type", "rotary frequencies other than none, linear, yarn")
        return rope
    scaling = {"factor": fields.get("rope.scaling.factor")}
    if kind == "yarn":
        scaling |= {name: fields.get(f"rope.scaling.{key}") for name, key in _GGUF_YARN.items()}
        scaling |= {"mscale": 1.0, "truncate": truncate}  # GGUF has no keys for them
    rope = scaled_rope(kind, rope, Fields(f"{fields.where}: rope.scaling", scaling))
    if kind == "yarn":
        _check_yarn_amplitude(fields, rope)
    return rope


def _check_yarn_amplitude(fields: Fields, rope: Rope) -> None:
    """Refuse keys of an amplitude other than YaRN's own. What they multiply differs between writers of GGUF."""
    for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
        amplitude = fields.number(key, 1.0)
        if not any(math.isclose(amplitude, usual, rel_tol=1e-6) for usual in (1.0, rope.amplitude)):
            fields.refuse(key, "an amplitude other than that of YaRN")
