"""The sampling defaults of a model: those of its `generation_config.json`, or else ours. All front ends use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..json_files import read_json_object
from .constraints import CONSTRAINT_KINDS
from .settings import sampling_params_from

FILTERS = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_allowed_length")
# The most probable token, so that answers are right and reproducible. Small models then loop: SmolLM2-135M in 31 of 61
# answers of up to 256 tokens. With the DRY penalty, it loops in none of 200, and answers 34 of 40 questions as before
# (`python -m tests.questions.loops`, `python -m tests.questions --defaults`).
OWN_DEFAULTS: Mapping[str, Any] = {"temperature": 0.0, "dry_multiplier": 0.8}
# Fields of generation_config.json that have the same meaning here.
_SAME_MEANING = ("top_k", "top_p", "min_p", "repetition_penalty")


def read_generation_config(path: Path | None) -> dict[str, Any]:
    """Return the sampling defaults of a `generation_config.json` of transformers; ours, if it has none."""
    config = read_json_object(path) if path is not None else {}
    configured = {name: config[name] for name in _SAME_MEANING if config.get(name) is not None}
    if config.get("do_sample") is True:
        defaults = {"temperature": config.get("temperature") or 1.0, **configured}
    elif configured.get("repetition_penalty", 1.0) != 1.0:
        defaults = {"temperature": 0.0, "repetition_penalty": configured["repetition_penalty"]}
    else:
        defaults = dict(OWN_DEFAULTS)
    return check_defaults(defaults, str(path))


def check_defaults(defaults: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return sampling defaults that a file names, as valid settings of `generate`."""
    if unknown := set(defaults) - {*FILTERS, *PENALTIES}:
        raise FormatError(argument=source, expected="sampling defaults", got=", ".join(sorted(unknown))[:60])
    try:
        params = sampling_params_from(defaults)
    except InputError as error:
        raise FormatError(f"{source}: {error}", code="invalid_field") from error
    return {name: getattr(params, name) for name in defaults}


def apply_defaults(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with a model's defaults for those that are not set.

    If any filter or penalty is set, the default penalties do not apply: `temperature=0` is exactly greedy. They do not
    apply to constrained answers either, because JSON repeats itself.
    """
    explicit = any(name in settings for name in (*FILTERS, *PENALTIES))
    constrained = any(settings.get(name) is not None for name in CONSTRAINT_KINDS)
    skipped = PENALTIES if explicit or constrained else ()
    return {**{name: value for name, value in defaults.items() if name not in skipped}, **settings}


def describe_defaults(defaults: Mapping[str, Any]) -> str:
    """Return sampling defaults as one line."""
    return ", ".join(f"{name} {value:g}" for name, value in defaults.items())
