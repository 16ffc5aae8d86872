"""Read config.json and GGUF keys into an `Architecture`.

The set of fields is closed: a field is read, known to have no effect, or refused by name. A model that is wrong by a
few percent still produces fluent text, so an unknown field is never skipped. Null and empty mean that a field is unset.
No other value of an unknown field is accepted, including `false` and 0: `use_rope: false` would switch off rotary
embeddings, which are on here.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import FormatError, UnsupportedError
from .architecture import MAX_LAYERS, Architecture, LayerSpec, Rope

MAX_DIM_SIZE = 1 << 20  # of a dim of a model, and of a vocabulary
MAX_CONTEXT_TOKENS = 1 << 40  # tokens: a number of a formula, for which no memory is taken
MAX_TOKEN_ID = (1 << 31) - 1
MIN_NUMBER, MAX_NUMBER = 1e-30, 1e30  # of factors: beyond, products of them are no longer finite


class FieldRule(NamedTuple):
    """A field that changes what a model computes, unless its value is one of these."""

    values: tuple[Any, ...] | Callable[[Any], bool]
    changes: str

    def admits(self, value: Any) -> bool:
        return self.values(value) if callable(self.values) else value in self.values


class Fields:
    """The fields of one checkpoint, by name; `where` is named in errors.

    Whoever asks for a field vouches for every value it may have. What nobody asked for is judged by `refuse_unread`.
    """

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values
        self.prefix = ""  # of the names that are asked for, such as "llama." in GGUF files
        self._asked: set[str] = set()
        self._refused: dict[str, str] = {}

    def with_prefix(self, prefix: str) -> Fields:
        """The same fields, named without a prefix that they share."""
        view = copy.copy(self)
        view.prefix = prefix
        return view

    def require(self, *names: str) -> None:
        if missing := [self.prefix + name for name in names if self.get(name) is None]:
            raise FormatError(f"{self.where} has no {', '.join(missing)}", code="missing_field")

    def get(self, name: str, default: Any = None) -> Any:
        """As it stands, null being as good as absent."""
        self._asked.add(self.prefix + name)
        value = self.values.get(self.prefix + name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None, most: int = MAX_DIM_SIZE) -> int:
        """A size: an integer from 1 to `most`."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.invalid(name, value, f"a whole number above 0 and at most {most}")
        return value

    def token_id(self, name: str) -> int | None:
        """The number of a token, where there is one."""
        value = self.get(name)
        if value is not None and not is_token_id(value):
            raise self.invalid(name, value, "the number of a token")
        return value  # type: ignore[no-any-return]

    def string(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.invalid(name, value, "a string")
        return value

    def list_of(self, name: str, *types: type) -> list[Any]:
        """A list whose elements are of these types; empty where there is none."""
        value = self.get(name, [])
        if not isinstance(value, list) or not all(type(element) in types for element in value):
            raise self.invalid(name, value, f"a list of {' or '.join(each.__name__ for each in types)}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self.get(name, default)
        if not _is_factor(value):
            raise self.invalid(name, value, f"a number above 0, from {MIN_NUMBER:g} to {MAX_NUMBER:g},")
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.invalid(name, value, "true or false")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """Numbers above 0."""
        value = self.get(name)
        if not isinstance(value, list | tuple) or not all(map(_is_factor, value)):
            raise self.invalid(name, value, "a list of numbers above 0")
        return tuple(float(number) for number in value)

    def invalid(self, name: str, value: Any, wanted: str) -> FormatError:
        return FormatError(
            f"{self.where}: {self.prefix}{name} is {as_json(value)}; {wanted} is wanted", code="invalid_field"
        )

    def refuse(self, name: str, changes: str) -> None:
        """Told by `refuse_unread`, together with all the others; `changes` says what the field changes."""
        self._asked.add(self.prefix + name)
        self._refused[self.prefix + name] = (
            f"{self.prefix}{name} = {as_json(self.values.get(self.prefix + name))}: {changes}"
        )

    def refuse_unread(self, harmless: Callable[[str], bool], rules: Mapping[str, FieldRule], remedy: str = "") -> None:
        """Raise one error with every field that would change what is computed; `harmless` have no effect."""
        refused = dict(self._refused)
        unknown = False
        for name, value in self.values.items():
            unset = value is None or (isinstance(value, str | list | tuple | dict) and not value)
            if unset or name in self._asked or harmless(name):
                continue
            rule = rules.get(name)
            if rule is None:
                unknown = True
                refused[name] = f"{name} = {as_json(value)}: an unknown field, and what it changes is unknown"
            elif not rule.admits(value):
                refused[name] = f"{name} = {as_json(value)}: {rule.changes}"
        if not refused:
            return
        count = "a field that changes" if len(refused) == 1 else f"{len(refused)} fields that change"
        lines = [f"{self.where} has {count} what the model computes and cannot be exported:"]
        lines += [f"  {line}" for line in refused.values()]
        raise UnsupportedError(
            "\n".join(lines + [remedy] * (unknown and bool(remedy))), list(refused), code="unsupported_field"
        )


def is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and MIN_NUMBER <= value <= MAX_NUMBER


def as_json(value: Any) -> str:
    """A value in a message, as JSON and cut to a line."""
    text = json.dumps(value, default=str, ensure_ascii=True)
    return text if len(text) <= 90 else f"{text[:87]}..."


_ANY = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
_MAX_FACTOR = 1e9  # of YaRN: its inverse is added to 1, and must not vanish
_ORIGINAL = "original_max_position_embeddings"


def read_rope(
    fields: Fields,
    head_dim: int,
    *,
    theta: float = 10000.0,
    partial: bool = False,
    share: float = 1.0,
    aliases: Mapping[str, str] | None = None,
    harmless: tuple[str, ...] = (),
) -> Rope:
    """What is refused is told by `refuse_unread`. `partial`: transformers lets this model turn a part of each head.

    Where nothing is said, that is `share`. Settings that are `harmless` change nothing for this model.
    """
    name, settings = _settings(fields)
    base = _once(fields, name, settings, "rope_theta", theta)
    if base <= 1:
        raise fields.invalid("rope_theta", base, "a number above 1")
    share = _once(fields, name, settings, "partial_rotary_factor", share)
    if share > 1:
        raise fields.invalid("partial_rotary_factor", share, "a share of each head, at most 1,")
    rope = Rope(base, int(head_dim * share))
    if share != 1 and not partial:
        where = name if "partial_rotary_factor" in settings else "partial_rotary_factor"
        fields.refuse(where, "only a part of each head is rotated")
        return rope
    kind = settings.get("rope_type", settings.get("type", "default"))
    kind = (aliases or {}).get(kind, kind) if isinstance(kind, str) else None
    if kind not in KINDS:
        fields.refuse(name, f"other rotary frequencies than are known here: {', '.join(KINDS)}")
        return rope
    known, make = KINDS[kind]
    if strange := [
        key for key, value in settings.items() if value is not None and key not in (*_ANY, *known, *harmless)
    ]:
        fields.refuse(name, f"{', '.join(strange)} is unknown, and what it changes in rotary frequencies")
        return rope
    inner = Fields(f"{fields.where}: {name}", settings)
    return make(rope, inner, fields)


def scaled_rope(kind: str, rope: Rope, given: Fields) -> Rope:
    """Where nothing but the settings themselves is told, as in GGUF."""
    return KINDS[kind][1](rope, given, given)


def _settings(fields: Fields) -> tuple[str, dict[str, Any]]:
    """Older versions of transformers call them rope_scaling, newer ones rope_parameters."""
    found = {name: fields.get(name) for name in ("rope_scaling", "rope_parameters") if fields.get(name)}
    for name, value in found.items():
        if not isinstance(value, dict):
            fields.refuse(name, "other rotary frequencies than the default")
            return name, {}
    if len(found) == 2 and found["rope_scaling"] != found["rope_parameters"]:
        raise FormatError(f"{fields.where} contradicts itself: rope_scaling and rope_parameters differ")
    return next(iter(found.items()), ("rope_parameters", {}))


def _once(fields: Fields, name: str, settings: Mapping[str, Any], key: str, default: float) -> float:
    """A number that stands with the other settings, or beside them."""
    told = {key: fields.get(key), f"{name}.{key}": settings.get(key)}
    told = {where: value for where, value in told.items() if value is not None}
    if any(value != next(iter(told.values())) for value in told.values()):
        raise FormatError(f"{fields.where} contradicts itself: {', '.join(f'{n} is {v}' for n, v in told.items())}")
    return Fields(fields.where, told).number(next(iter(told), key), default)


# -- kinds: what stands in the settings -> divisors of frequencies --------------------------------------------------


def _default(rope: Rope, given: Fields, config: Fields) -> Rope:
    return rope


def _linear(rope: Rope, given: Fields, config: Fields) -> Rope:
    return replace(rope, divisors=(given.number("factor"),) * (rope.width // 2))


def _llama3(rope: Rope, given: Fields, config: Fields) -> Rope:
    """Slow pairs by the factor, fast ones not at all, and smoothly between."""
    factor, low, high = (given.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = given.integer(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT_TOKENS)
    if low >= high:
        raise FormatError(
            f"{given.where}: low_freq_factor is {low:g}, high_freq_factor {high:g}; it must be larger",
            code="invalid_field",
        )
    divisors = []
    for frequency in _frequencies(rope):
        turns = original * frequency / (2 * math.pi)  # in the original context
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return replace(rope, divisors=tuple(divisors))


def _yarn(rope: Rope, given: Fields, config: Fields) -> Rope:
    """As Llama 3's, by the number of the pair instead of its frequency, and louder."""
    original = given.integer(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT_TOKENS)
    factor = given.number("factor", config.integer("max_position_embeddings", original, MAX_CONTEXT_TOKENS) / original)
    if factor > _MAX_FACTOR:
        raise given.invalid("factor", factor, f"a number of at most {_MAX_FACTOR:g}")
    low, high = (
        rope.width * math.log(original / (given.number(name, turns) * 2 * math.pi)) / (2 * math.log(rope.theta))
        for name, turns in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    if given.boolean("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.width - 1)
    high = high + 0.001 if low == high else high
    ramp = [min(1.0, max(0.0, (pair - low) / (high - low))) for pair in range(rope.width // 2)]
    amplitude = given.number("attention_factor", _loudness(given, factor))
    return replace(rope, divisors=tuple(1 / (part / factor + 1 - part) for part in ramp), amplitude=amplitude)


def _loudness(given: Fields, factor: float) -> float:
    def grown(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    if given.get("mscale") and given.get("mscale_all_dim"):
        return grown(given.number("mscale")) / grown(given.number("mscale_all_dim"))
    return grown(1.0)


def _longrope(rope: Rope, given: Fields, config: Fields) -> Rope:
    """Two sets of divisors: one for contexts as they were trained first, one for longer ones."""
    beside = config.get(_ORIGINAL)  # Phi's, which transformers prefers
    if beside is None:
        original = given.integer(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT_TOKENS)
    else:
        original = config.integer(_ORIGINAL, most=MAX_CONTEXT_TOKENS)
    if original < 2:
        raise given.invalid(_ORIGINAL, original, "a number above 1")
    factor = given.number("factor", config.integer("max_position_embeddings", original, MAX_CONTEXT_TOKENS) / original)
    loud = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return replace(
        rope,
        divisors=given.numbers("short_factor"),
        long_divisors=given.numbers("long_factor"),
        original=original,
        amplitude=given.number("attention_factor", loud),
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
    ropes: Callable[[Fields, int], Mapping[str, Rope]] | None = None,  # of a model that has several
    activation: str = "silu",
    rope_harmless: tuple[str, ...] = (),
    norm_eps: str = "rms_norm_eps",
    hidden_dim: int | None = None,
) -> Architecture:
    """A Llama's, from config.json. Defaults are those transformers has where a file leaves a field out.

    `norm_eps` is what the family calls it; `hidden_dim` is given where it is not intermediate_size.
    """
    fields.require("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", norm_eps)
    if hidden_dim is None:
        fields.require("intermediate_size")
    dim, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if head_dim is None and fields.get("head_dim") is None and dim % heads:
        raise FormatError(f"{fields.where}: {heads} heads of a width of {dim} are {dim / heads:g} wide; say head_dim")
    size = fields.integer("head_dim", head_dim or dim // heads or None)
    _check_activation(fields, activation)
    if ropes is None:
        rope = read_rope(
            fields, size, theta=theta, partial=partial, share=share, aliases=rope_aliases, harmless=rope_harmless
        )
    return Architecture(
        dim=dim,
        n_heads=heads,
        n_kv_heads=fields.integer("num_key_value_heads", kv_heads or heads),
        head_dim=size,
        hidden_dim=hidden_dim or fields.integer("intermediate_size"),
        vocab_size=fields.integer("vocab_size"),
        norm_eps=fields.number(norm_eps),
        layers=(LayerSpec(),) * fields.integer("num_hidden_layers", most=MAX_LAYERS),
        ropes={"rope": rope} if ropes is None else ropes(fields, size),
        tied=fields.boolean("tie_word_embeddings", tied),
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
    window = None if told is None else fields.integer("sliding_window", default)
    used = fields.boolean("use_sliding_window") and window is not None
    kinds = fields.get("layer_types", names if used else ["full_attention"] * count)
    if not isinstance(kinds, list) or len(kinds) != count:
        raise fields.invalid("layer_types", kinds, f"a list of {count} names")
    known = ("full_attention", "sliding_attention") if used else ("full_attention",)
    if any(kind not in known for kind in kinds):
        fields.refuse("layer_types", "some layers do not attend to all tokens")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def decoder_gguf(fields: Fields, *, theta: float = 10000.0) -> Architecture:
    """A Llama's, from the keys of a GGUF file under its architecture's name."""
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
        n_kv_heads=fields.integer("attention.head_count_kv", heads),
        head_dim=size,
        hidden_dim=fields.integer("feed_forward_length"),
        vocab_size=len(fields.with_prefix("").list_of("tokenizer.ggml.tokens", str)),
        norm_eps=fields.number(eps),
        layers=(LayerSpec(window=_gguf_window(fields)),) * fields.integer("block_count", most=MAX_LAYERS),
        ropes={"rope": _gguf_rope(fields, size, theta)},
    )


def _gguf_window(fields: Fields) -> int | None:
    return fields.integer("attention.sliding_window") if fields.get("attention.sliding_window") else None


def _gguf_rope(fields: Fields, size: int, theta: float) -> Rope:
    """Divisors of frequencies, such as Llama 3's, are stored as a tensor, which the reader shows as a field."""
    rope = Rope(fields.number("rope.freq_base", theta), fields.integer("rope.dimension_count", size))
    if rope.theta <= 1:
        raise fields.invalid("rope.freq_base", rope.theta, "a number above 1")
    kind, tensors = fields.get("rope.scaling.type", "none"), fields.with_prefix("")
    if tensors.get("rope_freqs.weight") is not None:
        rope = replace(rope, divisors=tensors.numbers("rope_freqs.weight"))
    if kind == "none":
        return rope
    if kind not in ("linear", "yarn") or rope.divisors is not None:
        fields.refuse("rope.scaling.type", "other rotary frequencies than are known here: none, linear, yarn")
        return rope
    told = {"factor": fields.get("rope.scaling.factor")}
    if kind == "yarn":
        told["original_max_position_embeddings"] = fields.get("rope.scaling.original_context_length")
    return scaled_rope(kind, rope, Fields(f"{fields.where}: rope.scaling", told))
