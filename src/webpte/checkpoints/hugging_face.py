"""Read folders that Hugging Face's transformers saved: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, UnsupportedError
from ..json_files import read_json_object
from ..llm.tokenizer_file import read_tokenizer
from .architecture import Architecture
from .config import FieldRule, Fields
from .families import family_of_config
from .family import Checkpoint, Family, end_ids
from .safetensors_file import FloatTensor, Mxfp4Tensor, read_weights
from .shapes import parameter_shapes
from .text_part import WRAPPER_FIELDS, is_wrapper, text_config, text_tensors
from .tokenizer_config import read_chat_template, read_special_tokens, read_text
from .towers import tower_kind
from .vision_tower import read_vision
from .weights import EMBEDDING, HEAD, CheckpointWeights, check_layers, check_tensors, map_weights, unread_names

# The reason why fields have no effect -> the fields.
_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "origin of the file": (
        "_name_or_path", "_commit_hash", "transformers_version", "tokenizer_class", "is_llama_config", "unsloth_fixed",
        "unsloth_version", "transformers.js_config",
    ),
    "dtype of the stored weights; they are read as f32": ("dtype", "torch_dtype", "use_bfloat16"),
    "implementation choices of transformers": (
        "use_cache", "cache_implementation", "pretraining_tp", "chunk_size_feed_forward", "gradient_checkpointing",
        "attn_implementation",
        "_attn_implementation", "_attn_implementation_autoset", "_flash_attn_2_enabled", "use_flash_attention",
        "torchscript", "tf_legacy_loss",
    ),
    "return values of transformers": (
        "output_attentions", "output_hidden_states", "output_scores", "return_dict", "use_return_dict",
        "return_dict_in_generate",
    ),
    "training only": (
        "initializer_range", "attention_dropout", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop",
        "attn_pdrop", "classifier_dropout", "label_smoothing",
    ),
    "training context, which is read separately; rotary tables are computed for any position": (
        "max_position_embeddings", "max_sequence_length", "model_max_length",
    ),
    "tokens that the caller inserts": (
        "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "decoder_start_token_id",
        "prefix",
    ),
    "other tasks than language modeling": (
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "is_decoder",
    ),
    "generation defaults of older versions of transformers": (
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
        "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
        "begin_suppress_tokens",
    ),
}  # fmt: skip
IGNORED_FIELDS = frozenset[str]().union(*_WITHOUT_EFFECT.values())


def _no_model_code(classes: Any) -> bool:
    return isinstance(classes, dict) and not any(str(name).startswith("AutoModel") for name in classes)


def _each(*values: Any) -> Any:
    return lambda items: isinstance(items, list) and all(item in values for item in items)


_BIAS = "biases, which are not supported"
_SCALE = "activations are scaled"
_EXPERTS = "a mixture of experts"
_STORED = "the weights are quantized; export the float checkpoint"

FIELD_RULES: dict[str, FieldRule] = {
    "auto_map": FieldRule(_no_model_code, "the model needs its own code, which is not run"),
    "hidden_activation": FieldRule(("silu", "swish"), "an activation other than silu"),
    "attention_bias": FieldRule((False,), _BIAS),
    "attention_out_bias": FieldRule((False,), _BIAS),
    "attention_qkv_bias": FieldRule((False,), _BIAS),
    "qkv_bias": FieldRule((False,), _BIAS),
    "mlp_bias": FieldRule((False,), _BIAS),
    "use_bias": FieldRule((False,), _BIAS),
    "bias": FieldRule((False,), _BIAS),
    "lm_head_bias": FieldRule((False,), _BIAS),
    "partial_rotary_factor": FieldRule((1,), "only a part of each head is rotated"),
    "rotary_pct": FieldRule((1,), "only a part of each head is rotated"),
    "rope_interleaved": FieldRule((False,), "elements rotate as neighbours, not as halves"),
    "no_rope_layers": FieldRule(_each(1), "some layers are not rotated"),
    "no_rope_layer_interval": FieldRule((), "some layers are not rotated"),
    "use_mrope": FieldRule((False,), "positions have several axes"),
    "alibi": FieldRule((False,), "positions are encoded by a bias (ALiBi)"),
    "layer_types": FieldRule(_each("full_attention"), "some layers have no full attention"),
    "use_sliding_window": FieldRule((False,), "some layers have no full attention"),
    "is_causal": FieldRule((True,), "attention is not causal"),
    "use_bidirectional_attention": FieldRule((False,), "attention is not causal"),
    "is_encoder_decoder": FieldRule((False,), "an encoder-decoder model"),
    "add_cross_attention": FieldRule((False,), "cross-attention to an encoder-decoder model"),
    "tie_encoder_decoder": FieldRule((False,), "an encoder-decoder model"),
    "attn_logit_softcapping": FieldRule((), "attention scores are capped"),
    "final_logit_softcapping": FieldRule((), "logits are capped"),
    "clip_qkv": FieldRule((), "queries, keys and values are capped"),
    "query_pre_attn_scalar": FieldRule((), "attention scores have another scale"),
    "attention_multiplier": FieldRule((), "attention scores have another scale"),
    "embedding_multiplier": FieldRule((1,), _SCALE),
    "residual_multiplier": FieldRule((1,), _SCALE),
    "logits_scaling": FieldRule((1,), _SCALE),
    "logit_scale": FieldRule((1,), _SCALE),
    "use_qk_norm": FieldRule((False,), "queries and keys are normalized"),
    "qk_norm": FieldRule((False,), "queries and keys are normalized"),
    "qk_layernorm": FieldRule((False,), "queries and keys are normalized"),
    "use_parallel_residual": FieldRule((False,), "attention and feed-forward run in parallel"),
    "num_local_experts": FieldRule((0,), _EXPERTS),
    "num_experts": FieldRule((0,), _EXPERTS),
    "n_routed_experts": FieldRule((0,), _EXPERTS),
    "num_experts_per_tok": FieldRule((0,), _EXPERTS),
    "quantization_config": FieldRule((), _STORED),
    "quantization": FieldRule((), _STORED),
}  # fmt: skip


_HINT = "If you know that an unknown field has no effect, remove it from config.json."


def validate_folder(folder: Path) -> tuple[Family, Architecture, Fields]:
    """Read and check everything but the weights, which may not be downloaded yet."""
    values = read_json_object(folder / "config.json")
    fields = Fields(str(folder / "config.json"), text_config(values) if is_wrapper(values) else values)
    family = family_of_config(str(folder), fields.get("model_type"))
    model = read_config(family, fields)
    if (folder / "adapter_config.json").exists():
        raise UnsupportedError(
            f"{folder} has an adapter_config.json", code="adapter", hint="Merge the adapter into the weights first."
        )
    return family, model, fields


def read_folder(folder: Path) -> Checkpoint:
    """Read the checkpoint in a folder."""
    family, model, fields = validate_folder(folder)
    tensors = _find_tensors(folder, model)
    config = read_json_object(folder / "config.json")
    vision = None
    if is_wrapper(config):
        kind = tower_kind(config)
        if kind is not None:
            outer = Fields(str(folder / "config.json"), config)
            vision = read_vision(outer, kind, tensors, _image_processor(folder))
            outer.warn_unread((IGNORED_FIELDS | WRAPPER_FIELDS).__contains__, {})
        tensors = text_tensors(str(folder), tensors, None if kind is None else kind.tensors)
    _remove_fixed(str(folder), family, tensors)
    check_layers(str(folder), model.n_layers, len(tensors))
    names = family.names_for(tensors)
    sources = map_weights(parameter_shapes(model), model, names)
    head = names.stored_name(HEAD)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    check_tensors(str(folder), family.name, shapes, sources, {head, *unread_names(model, names)} & {*tensors})
    embedding = sources[EMBEDDING].stored_name
    if model.tied and head in tensors and not np.array_equal(tensors[head].read(), tensors[embedding].read()):
        raise FormatError(
            f"{folder}: tie_word_embeddings is true, but {head} differs from the embedding", code="contradiction"
        )
    generation = (
        read_json_object(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    )
    ends = [end for end in (fields.get("eos_token_id"), generation.get("eos_token_id")) if end is not None]
    tokenizer = read_text(folder / "tokenizer.json")
    vocabulary = read_tokenizer(f"{folder}: its tokenizer.json", tokenizer.encode()).get_vocab()
    return Checkpoint(
        family=family,
        architecture=model,
        weights=CheckpointWeights(sources, tensors),
        tokenizer=tokenizer,
        chat_template=read_chat_template(folder),
        bos_id=fields.token_id("bos_token_id"),
        eos_ids=end_ids(str(folder), ends, family.end_tokens, tokenizer),
        special_tokens=read_special_tokens(folder, vocabulary),
        generation_config=generation,
        vision=vision,
        context=_context(fields, model),
    )


def _image_processor(folder: Path) -> dict[str, Any]:
    """Return preprocessor_config.json, which newer folders have as a part of processor_config.json."""
    for name, part in (("preprocessor_config.json", None), ("processor_config.json", "image_processor")):
        if (folder / name).exists():
            content = read_json_object(folder / name)
            values = content if part is None else content.get(part)
            if isinstance(values, dict):
                return values
    return {}


def _remove_fixed(where: str, family: Family, tensors: dict[str, FloatTensor | Mxfp4Tensor]) -> None:
    """Remove tensors whose number is built into the program, after it is checked up to half precision."""
    for name in list(tensors):
        pattern = re.sub(r"\.\d+\.", ".*.", name)
        if pattern not in family.fixed_tensors:
            continue
        expected, values = family.fixed_tensors[pattern], tensors.pop(name).read()
        if not np.allclose(values, expected, rtol=8e-3, atol=0):
            raise UnsupportedError(
                argument=f"{where}: {name}",
                expected=str(expected),
                got=values.reshape(-1)[:4].tolist(),
                code="fixed_tensor",
            )


def _context(fields: Fields, model: Architecture) -> int | None:
    """Return the tokens that a model was trained for, and that its layers here support."""
    limits = [limit for limit in (fields.context("max_position_embeddings"), model.max_positions) if limit is not None]
    return min(limits, default=None)


def read_config(family: Family, fields: Fields) -> Architecture:
    """Read config.json, and refuse fields that are neither read nor without effect."""
    model = family.config(fields)
    for name in ("model_type", "bos_token_id", "eos_token_id"):
        fields.get(name)

    def is_known_class(names: Any) -> bool:
        return isinstance(names, list) and all(name in family.classes for name in names)

    head = FieldRule(is_known_class, "a head of another task, or another model")
    fields.refuse_unread(IGNORED_FIELDS.__contains__, {**FIELD_RULES, **family.rules, "architectures": head}, _HINT)
    model.check(fields.where)
    return model


# ---------------------------------------------------------------- tensors


def _find_tensors(folder: Path, model: Architecture) -> dict[str, FloatTensor | Mxfp4Tensor]:
    """Return every tensor by name, except rotary frequencies that are computed here."""
    return {
        name: tensor
        for name, tensor in read_tensors(folder).items()
        if not (name.endswith("rotary_emb.inv_freq") and _is_plain(tensor.read(), model))
    }


def read_tensors(folder: Path) -> dict[str, FloatTensor | Mxfp4Tensor]:
    """Return every tensor by name."""
    tensors: dict[str, FloatTensor | Mxfp4Tensor] = {}
    for path in _weight_files(folder):
        for name, tensor in read_weights(path).items():
            if name in tensors:
                raise FormatError(f"{name} is in {tensors[name].span.file.path} and in {path}", code="duplicate_tensor")
            tensors[name] = tensor
    if not tensors:
        raise FormatError(f"{folder} has no safetensors with weights", code="no_safetensors")
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that transformers would load; others may hold the same weights under other names."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    if (folder / "model.safetensors.index.json").exists():
        index = read_json_object(folder / "model.safetensors.index.json").get("weight_map")
        if not isinstance(index, dict) or not all(map(_is_weight_file, index.values())):
            raise FormatError(
                argument=f"{folder / 'model.safetensors.index.json'}: weight_map",
                expected="names of .safetensors files beside it",
                got=f"{index!r:.100}",
                code="weight_map",
            )
        return sorted({folder / name for name in index.values()})
    return sorted(folder.glob("*.safetensors"))


def _is_weight_file(name: object) -> bool:
    """Return whether a value is the name of a .safetensors file, without a path."""
    return isinstance(name, str) and name.endswith(".safetensors") and name.isprintable() and not {*name} & {*"/\\"}


def _is_plain(frequencies: np.ndarray[Any, Any], model: Architecture) -> bool:
    """Return whether stored rotary frequencies equal the computed ones, up to rounding to half precision."""
    for rope in model.ropes.values():
        plain = rope.theta ** -(np.arange(0, rope.width, 2) / rope.width)
        same = frequencies.shape == plain.shape and np.allclose(frequencies, plain, rtol=4e-3, atol=1e-7)
        if rope.divisors is None and same:
            return True
    return False
