"""The language model in the checkpoint of a model that takes images too: its config and its tensors, unwrapped."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from .towers import tower_kind, towers

Tensor = TypeVar("Tensor")
logger = logging.getLogger(__name__)

# model_type of a wrapper whose encoder is not read -> fields of its text_config that published files leave to the
# defaults of transformers. The others are declared in towers/.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma4": {"model_type": "gemma4_text"},
    "mistral3": {"model_type": "mistral"},
    "qwen3_5_moe": {"model_type": "qwen3_5_moe_text"},
}
_CLASSES = (
    "Gemma4ForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
# Fields of the wrapper that hold for its language model.
_SHARED = ("tie_word_embeddings", "bos_token_id", "eos_token_id", "dtype", "torch_dtype", "quantization_config")
# Fields of the wrapper about its parts, the tokens of images, and the image processor, which has its own file.
WRAPPER_FIELDS = frozenset({
    *_SHARED, "_pad_token_id", "text_config", "vision_config", "audio_config", "model_type",
    "architectures", "image_token_id",
    "image_token_index", "video_token_id", "video_token_index", "vision_start_token_id", "vision_end_token_id",
    "vision_token_id", "boi_token_index", "eoi_token_index", "boi_token_id", "eoi_token_id", "audio_token_id",
    "audio_token_index", "boa_token_index", "eoa_token_index", "vocab_size", "hidden_size",
    "use_reentrant_checkpointing", "image_seq_len", "image_seq_length", "language_model_only", "do_image_splitting",
    "encoder_patch_size", "max_image_tokens", "min_image_tokens", "max_num_patches", "max_pixels_tolerance",
    "max_tiles", "min_tiles", "tile_size", "use_image_special_tokens", "use_thumbnail",
})  # fmt: skip
_PREFIXES = {
    "language_model.model.": "model.",
    "model.language_model.": "model.",
    "model.text_model.": "model.",
    "language_model.lm_head": "lm_head",
}
_LEFT_OUT = {
    r"(model\.)?(vision_tower|multi_modal_projector|visual|embed_vision)\.": "image encoder",
    r"(model\.)?(audio_tower|embed_audio)\.": "audio encoder",
    r"mtp\.": "heads that draft further tokens",
}


def wrapper_classes() -> tuple[str, ...]:
    """Return the values of `architectures` of models with a language model inside."""
    return (*_CLASSES, *(name for kind in towers().values() for name in kind.classes))


def is_wrapper(config: Mapping[str, Any]) -> bool:
    """Return whether config.json describes a known model with a language model inside."""
    kind = config.get("model_type")
    known = (isinstance(kind, str) and kind in _DEFAULTS) or tower_kind(config) is not None
    return known and isinstance(config.get("text_config"), dict)


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of the language model in a wrapper."""
    kind = tower_kind(config)
    defaults, unused = ({}, {}) if kind is None else (kind.text_defaults, kind.text_unused)
    inner = {
        name: value
        for name, value in config["text_config"].items()
        if value is not None and not (name in unused and ((values := unused[name]) is None or value in values))
    }
    shared = {name: config[name] for name in _SHARED if config.get(name) is not None}
    return {**_DEFAULTS.get(config["model_type"], defaults), **shared, **inner}


def text_name(name: str) -> str:
    """Return the name that a part of the language model in a wrapper has alone."""
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    return _PREFIXES.get(prefix, "") + name.removeprefix(prefix)


def text_tensors(where: str, tensors: Mapping[str, Tensor], encoder: str | None) -> dict[str, Tensor]:
    """Return the tensors of the language model by the names that it has alone. Log what is left out.

    Names that match `encoder` are those of an image encoder that is read.
    """
    result, left_out = {}, set()
    for name, tensor in tensors.items():
        if encoder is not None and re.match(encoder, name):
            continue
        part = next((part for pattern, part in _LEFT_OUT.items() if re.match(pattern, name)), None)
        if part is not None:
            left_out.add(part)
            continue
        result[text_name(name)] = tensor
    if left_out:
        logger.warning("%s: the language model is read; left out: %s", where, ", ".join(sorted(left_out)))
    return result
