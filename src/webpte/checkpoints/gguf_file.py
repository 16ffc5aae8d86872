"""Read GGUF checkpoints: keys, tokenizer, and weights, which are decoded one at a time."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import FormatError
from .architecture import Architecture
from .config import MAX_DIM_SIZE, FieldRule, Fields
from .families import family_of_gguf
from .family import Checkpoint, Family, end_ids
from .gguf_reader import StoredTensor, read_header
from .gguf_tokenizer import rebuild_tokenizer, special_tokens
from .gguf_vision import read_vision_beside
from .shapes import parameter_shapes
from .weights import HEAD, CheckpointWeights, check_layers, check_tensors, map_weights, unread_names

logger = logging.getLogger(__name__)

# Tensors that are settings: divisors of rotary frequencies. They are read as fields.
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

# Namespaces and keys without effect on the model -> their contents.
_WITHOUT_EFFECT = {
    "general.": "origin and storage of the file, and sampling defaults, which are read separately",
    "tokenizer.": "the tokenizer and the chat template, which are read separately",
    "quantize.": "how its weights were quantized",
    "mradermacher.": "the converter",
    "split.tensors.count": "the number of tensors in all parts; split.count is checked",
}

_SCALE = "activations are scaled"
_EXPERTS = "a mixture of experts"
_FREQUENCIES = "rotary frequencies other than the default"

_RULES: dict[str, FieldRule] = {
    "general.type": FieldRule(("model",), "the file is not a complete model"),
    "split.count": FieldRule((0, 1), "the model is in several files; merge them with gguf-split"),
    "split.no": FieldRule((0,), "the model is in several files; merge them with gguf-split"),
}
# Keys with the architecture's name as prefix:
_OF_MODELS: dict[str, FieldRule] = {
    "rope.scaling.type": FieldRule(("none",), _FREQUENCIES),
    "rope.scaling.factor": FieldRule((0, 1), _FREQUENCIES),
    "rope.scaling.attn_factor": FieldRule((1,), _FREQUENCIES),
    "rope.scaling.original_context_length": FieldRule((), _FREQUENCIES),
    "rope.scaling.finetuned": FieldRule((False,), _FREQUENCIES),
    "rope.scale_linear": FieldRule((0, 1), _FREQUENCIES),
    "attention.causal": FieldRule((True,), "attention is not causal"),
    "attention.scale": FieldRule((0,), "attention scores have another scale"),
    "attention.clamp_kqv": FieldRule((0,), "queries, keys and values are capped"),
    "attention.max_alibi_bias": FieldRule((0,), "positions are encoded by a bias (ALiBi)"),
    "attn_logit_softcapping": FieldRule((0,), "attention scores are capped"),
    "final_logit_softcapping": FieldRule((0,), "logits are capped"),
    "logit_scale": FieldRule((0, 1), _SCALE),
    "residual_scale": FieldRule((0, 1), _SCALE),
    "embedding_scale": FieldRule((0, 1), _SCALE),
    "use_parallel_residual": FieldRule((False,), "attention and feed-forward run in parallel"),
    "expert_count": FieldRule((0,), _EXPERTS),
    "expert_used_count": FieldRule((0,), _EXPERTS),
    "tensor_data_layout": FieldRule(("Meta AI original pth",), "weights are stored in another order"),
}
_WITHOUT_EFFECT_OF_MODELS = {
    "context_length": "training context, which is read separately; rotary tables are computed for any position",
    "vocab_size": "the tokens of the tokenizer are counted",
}


# Keys of sampling defaults -> their names in generation_config.json. Others keep their names, and are reported there.
_SAMPLING = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "temp": "temperature"}
_SAMPLING |= {"penalty_repeat": "repetition_penalty"}
_SAMPLING_PREFIX = "general.sampling."


def sampling_defaults(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the sampling defaults of a file, as generation_config.json has them. A temperature of 0 is greedy."""
    stored = {key: value for key, value in values.items() if key.startswith(_SAMPLING_PREFIX)}
    config = {
        _SAMPLING.get(key.removeprefix(_SAMPLING_PREFIX), key): float(f"{value:.7g}") if type(value) is float else value
        for key, value in stored.items()  # 0.6, not the nearest f32
    }
    return {"do_sample": True, **config} if config.get("temperature") else config


def is_ignored_key(key: str, architecture: str) -> bool:
    """Return whether a key has no effect on the model."""
    if key.startswith(f"{architecture}."):
        return key.removeprefix(f"{architecture}.") in _WITHOUT_EFFECT_OF_MODELS
    return key not in _RULES and key.startswith(tuple(_WITHOUT_EFFECT))


def key_rules(architecture: str) -> dict[str, FieldRule]:
    """Return the rules of keys that no family reads."""
    return _RULES | {f"{architecture}.{key}": rule for key, rule in _OF_MODELS.items()}


def read_gguf(path: Path) -> Checkpoint:
    """Read a GGUF checkpoint."""
    values, tensors = read_header(path)
    values |= {name: _numbers(path, tensors.pop(name)) for name in ROTARY_TENSORS if name in tensors}
    fields = Fields(str(path), values)
    architecture = values.get("general.architecture")
    family = family_of_gguf(fields.where, architecture)
    model = read_keys(family, fields, str(architecture))
    model = replace(model, tied=family.gguf_names.stored_name(HEAD) not in tensors)
    if values.get(f"{architecture}.nextn_predict_layers"):
        logger.warning("%s: the language model is read; left out: layers that draft further tokens", path)
        blocks = {name: re.match(r"blk\.(\d+)\.", name) for name in tensors}
        tensors = {
            name: tensors[name] for name, block in blocks.items() if block is None or int(block[1]) < model.n_layers
        }
    check_layers(fields.where, model.n_layers, len(tensors))
    sources = map_weights(parameter_shapes(model), model, family.gguf_names)
    shapes, unread = {name: stored.shape for name, stored in tensors.items()}, unread_names(model, family.gguf_names)
    check_tensors(fields.where, family.name, shapes, sources, unread)
    keys = fields.with_prefix("tokenizer.ggml.")
    ends = [keys.token_id(f"{kind}_token_id") for kind in ("eos", "eot", "eom")]  # end of text, of turn, of message
    tokenizer = rebuild_tokenizer(fields, path)
    vision = read_vision_beside(path, model.dim, frozenset(keys.list_of("tokens", str)))
    return Checkpoint(
        family=family,
        architecture=model,
        weights=CheckpointWeights(sources, tensors),
        tokenizer=tokenizer,
        chat_template=fields.string("tokenizer.chat_template"),
        bos_id=keys.token_id("bos_token_id"),
        eos_ids=end_ids(str(path), [end for end in ends if end is not None], family.end_tokens, tokenizer),
        special_tokens=special_tokens(fields),
        generation_config=sampling_defaults(values),
        vision=vision,
        context=fields.with_prefix(f"{architecture}.").context("context_length"),
    )


def read_keys(family: Family, fields: Fields, architecture: str) -> Architecture:
    """Read the keys of a model, and refuse keys that are neither read nor without effect."""
    assert family.gguf is not None, family.name
    model = family.gguf(fields.with_prefix(f"{architecture}."))
    fields.refuse_unread(lambda name: is_ignored_key(name, architecture), key_rules(architecture))
    model.check(fields.where)
    return model


def _numbers(path: Path, tensor: StoredTensor) -> list[float] | None:
    """Return divisors of rotary frequencies, or None if all are 1."""
    if math.prod(tensor.shape) > MAX_DIM_SIZE:
        raise FormatError(
            argument=f"{path}: {tensor.name}",
            expected="a factor for each pair of a head",
            got=f"the shape {list(tensor.shape)}",
            code="tensor_shape",
        )
    numbers = tensor.read().flatten().tolist()
    return None if all(number == 1 for number in numbers) else numbers
