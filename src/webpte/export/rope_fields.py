"""The rotary settings of config.json, as numbers that pairs turn by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import FormatError
from .architecture import Rope
from .fields import MAX_CONTEXT, Fields

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
    """What is refused is told by `refuse_others`. `partial`: transformers lets this model turn a part of each head.

    Where nothing is said, that is `share`. Settings that are `harmless` change nothing for this model.
    """
    name, settings = _settings(fields)
    base = _once(fields, name, settings, "rope_theta", theta)
    if base <= 1:
        raise fields.wrong("rope_theta", base, "a number above 1")
    share = _once(fields, name, settings, "partial_rotary_factor", share)
    if share > 1:
        raise fields.wrong("partial_rotary_factor", share, "a share of each head, at most 1,")
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
    return Fields(fields.where, told).real(next(iter(told), key), default)


# -- kinds: what stands in the settings -> divisors of frequencies --------------------------------------------------


def _default(rope: Rope, given: Fields, config: Fields) -> Rope:
    return rope


def _linear(rope: Rope, given: Fields, config: Fields) -> Rope:
    return replace(rope, divisors=(given.real("factor"),) * (rope.width // 2))


def _llama3(rope: Rope, given: Fields, config: Fields) -> Rope:
    """Slow pairs by the factor, fast ones not at all, and smoothly between."""
    factor, low, high = (given.real(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = given.whole(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT)
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
    original = given.whole(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT)
    factor = given.real("factor", config.whole("max_position_embeddings", original, MAX_CONTEXT) / original)
    if factor > _MAX_FACTOR:
        raise given.wrong("factor", factor, f"a number of at most {_MAX_FACTOR:g}")
    low, high = (
        rope.width * math.log(original / (given.real(name, turns) * 2 * math.pi)) / (2 * math.log(rope.theta))
        for name, turns in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    if given.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.width - 1)
    high = high + 0.001 if low == high else high
    ramp = [min(1.0, max(0.0, (pair - low) / (high - low))) for pair in range(rope.width // 2)]
    amplitude = given.real("attention_factor", _loudness(given, factor))
    return replace(rope, divisors=tuple(1 / (part / factor + 1 - part) for part in ramp), amplitude=amplitude)


def _loudness(given: Fields, factor: float) -> float:
    def grown(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    if given.get("mscale") and given.get("mscale_all_dim"):
        return grown(given.real("mscale")) / grown(given.real("mscale_all_dim"))
    return grown(1.0)


def _longrope(rope: Rope, given: Fields, config: Fields) -> Rope:
    """Two sets of divisors: one for contexts as they were trained first, one for longer ones."""
    beside = config.get(_ORIGINAL)  # Phi's, which transformers prefers
    if beside is None:
        original = given.whole(_ORIGINAL, config.get("max_position_embeddings"), MAX_CONTEXT)
    else:
        original = config.whole(_ORIGINAL, most=MAX_CONTEXT)
    if original < 2:
        raise given.wrong(_ORIGINAL, original, "a number above 1")
    factor = given.real("factor", config.whole("max_position_embeddings", original, MAX_CONTEXT) / original)
    loud = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return replace(
        rope,
        divisors=given.reals("short_factor"),
        long_divisors=given.reals("long_factor"),
        original=original,
        amplitude=given.real("attention_factor", loud),
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
