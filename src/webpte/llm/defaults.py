"""The sampling defaults of a model: those of its `generation_config.json`, or else ours. All front ends use them.

Every field of the file is applied, known to have no effect, or named in a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..fields import FieldRule, ReadFields
from ..json_files import read_json_object
from .constraints import CONSTRAINT_KINDS
from .settings import sampling_params_from

FILTERS = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_allowed_length")
# The most probable token, so that answers are right and reproducible. Small models then loop: SmolLM2-135M in 31 of 61
# answers of up to 256 tokens. With the DRY penalty, it loops in none of 200, and answers 34 of 40 questions as before
# (`python -m tests.studies questions.loops`, `python -m tests.studies questions --defaults`).
OWN_DEFAULTS: Mapping[str, Any] = {"temperature": 0.0, "dry_multiplier": 0.8}
# Fields of generation_config.json that have the same meaning here.
_SAME_MEANING = ("top_k", "top_p", "min_p", "repetition_penalty")
_IGNORED = {
    # read with the tokenizer and the program
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
    # origin of the file
    "_from_model_config", "_commit_hash", "transformers_version", "trust_remote_code",
    # lengths, which each request states
    "max_length", "max_new_tokens", "max_time", "num_return_sequences",
    # how transformers computes and what it returns
    "use_cache", "cache_implementation", "cache_config", "compile_config", "disable_compile", "low_memory",
    "max_cache_len", "prefill_chunk_size",
    "return_dict_in_generate", "return_legacy_cache", "output_attentions", "output_hidden_states", "output_logits",
    "output_scores", "continuous_batching_config",
    # drafts, which change no answer
    "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "prompt_lookup_num_tokens",
    "max_matching_ngram_size", "speculation_type", "assistant_ensemble_weight", "use_mtp",
    # of beams only, which have a rule
    "early_stopping", "length_penalty",
    # normalization that sampling has anyway, and NaN, which raises an error here
    "renormalize_logits", "remove_invalid_values",
}  # fmt: skip
_BANNED, _FORCED = "tokens that are never generated", "tokens that answers must contain"
_RULES = {
    "num_beams": FieldRule((1,), "beam search"),
    "num_beam_groups": FieldRule((1,), "beam search"),
    "diversity_penalty": FieldRule((0,), "beam search"),
    "typical_p": FieldRule((1,), "a filter of tokens"),
    "epsilon_cutoff": FieldRule((0,), "a filter of tokens"),
    "eta_cutoff": FieldRule((0,), "a filter of tokens"),
    "top_h": FieldRule((), "a filter of tokens"),
    "penalty_alpha": FieldRule((0,), "contrastive search"),
    "dola_layers": FieldRule((), "another kind of decoding"),
    "guidance_scale": FieldRule((1,), "a second prompt that guides answers"),
    "encoder_repetition_penalty": FieldRule((1,), "a penalty"),
    "no_repeat_ngram_size": FieldRule((0,), "repeated n-grams are forbidden"),
    "encoder_no_repeat_ngram_size": FieldRule((0,), "n-grams of the prompt are forbidden"),
    "exponential_decay_length_penalty": FieldRule((), "long answers become less likely"),
    "sequence_bias": FieldRule((), "a bias of tokens"),
    "bad_words_ids": FieldRule((), _BANNED),
    "suppress_tokens": FieldRule((), _BANNED),
    "begin_suppress_tokens": FieldRule((), _BANNED),
    "force_words_ids": FieldRule((), _FORCED),
    "constraints": FieldRule((), _FORCED),
    "forced_bos_token_id": FieldRule((), _FORCED),
    "forced_eos_token_id": FieldRule((), _FORCED),
    "min_length": FieldRule((0,), "answers have a minimum length"),
    "min_new_tokens": FieldRule((0,), "answers have a minimum length"),
    "stop_strings": FieldRule((), "texts that end an answer"),
    "token_healing": FieldRule((False,), "the last token of a prompt may change"),
    "watermarking_config": FieldRule((), "answers are watermarked"),
}


def read_generation_config(path: Path | None) -> dict[str, Any]:
    """Return the sampling defaults of a `generation_config.json` of transformers; ours, if it has none."""
    config = read_json_object(path) if path is not None else {}
    fields = ReadFields(str(path), config)
    configured = {name: fields.get(name) for name in _SAME_MEANING if fields.get(name) is not None}
    temperature = fields.get("temperature")
    if fields.get("do_sample") is True:
        defaults = {"temperature": temperature or 1.0, **configured}
    elif configured.get("repetition_penalty", 1.0) != 1.0:
        defaults = {"temperature": 0.0, "repetition_penalty": configured["repetition_penalty"]}
    else:
        defaults = dict(OWN_DEFAULTS)
    fields.warn_unread(_IGNORED.__contains__, _RULES)
    return check_defaults(defaults, str(path))


def read_end_tokens(path: Path | None) -> tuple[int, ...]:
    """Return the tokens that end an answer by a `generation_config.json`: one id, or several."""
    value = None if path is None else read_json_object(path).get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(number) is int and number >= 0 for number in ids):
        raise FormatError(
            argument=f"{path}: eos_token_id", expected="token ids", got=f"{value!r:.40}", code="eos_token_id"
        )
    return tuple(ids)


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
