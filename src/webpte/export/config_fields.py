"""The fields of config.json that no family reads: which change nothing and why, which would change the mathematics."""

from __future__ import annotations

from typing import Any

from .fields import Neutral

# Why they change nothing -> the fields.
_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "where the file comes from and what wrote it": (
        "_name_or_path", "_commit_hash", "transformers_version", "tokenizer_class", "is_llama_config", "unsloth_fixed",
        "unsloth_version", "transformers.js_config",
    ),
    "the type weights are stored in; they are read as f32": ("dtype", "torch_dtype", "use_bfloat16"),
    "how transformers computes the same numbers": (
        "use_cache", "cache_implementation", "pretraining_tp", "chunk_size_feed_forward", "gradient_checkpointing",
        "attn_implementation",
        "_attn_implementation", "_attn_implementation_autoset", "_flash_attn_2_enabled", "use_flash_attention",
        "torchscript", "tf_legacy_loss",
    ),
    "what a call of transformers returns": (
        "output_attentions", "output_hidden_states", "output_scores", "return_dict", "use_return_dict",
        "return_dict_in_generate",
    ),
    "training alone": (
        "initializer_range", "attention_dropout", "hidden_dropout", "dropout", "resid_pdrop", "embd_pdrop",
        "attn_pdrop", "classifier_dropout", "label_smoothing",
    ),
    "how far it was trained; rotary tables are computed for any position": (
        "max_position_embeddings", "max_sequence_length", "model_max_length",
    ),
    "tokens that the caller puts in": (
        "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "decoder_start_token_id",
        "prefix",
    ),
    "other tasks than language": (
        "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "is_decoder",
    ),
    "defaults of generation, which older versions of transformers kept here": (
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
        "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
        "begin_suppress_tokens",
    ),
}  # fmt: skip
HARMLESS = frozenset[str]().union(*_WITHOUT_EFFECT.values())


def _no_model_code(classes: Any) -> bool:
    return isinstance(classes, dict) and not any(str(name).startswith("AutoModel") for name in classes)


def _each(*values: Any) -> Any:
    return lambda found: isinstance(found, list) and all(value in values for value in found)


_BIAS = "biases are added, which is not done here"
_SCALE = "numbers on the way are scaled by it"
_EXPERTS = "its layers choose among experts"
_STORED = "its weights are stored quantised; export from the checkpoint they were made of"

RULES: dict[str, Neutral] = {
    "auto_map": Neutral(_no_model_code, "the model is code of its own, which is not run"),
    "hidden_activation": Neutral(("silu", "swish"), "another activation than silu"),
    "attention_bias": Neutral((False,), _BIAS),
    "attention_out_bias": Neutral((False,), _BIAS),
    "attention_qkv_bias": Neutral((False,), _BIAS),
    "qkv_bias": Neutral((False,), _BIAS),
    "mlp_bias": Neutral((False,), _BIAS),
    "use_bias": Neutral((False,), _BIAS),
    "bias": Neutral((False,), _BIAS),
    "lm_head_bias": Neutral((False,), _BIAS),
    "partial_rotary_factor": Neutral((1,), "only a part of each head is rotated"),
    "rotary_pct": Neutral((1,), "only a part of each head is rotated"),
    "rope_interleaved": Neutral((False,), "neighbours are rotated as pairs, not halves"),
    "no_rope_layers": Neutral(_each(1), "some layers are not rotated"),
    "no_rope_layer_interval": Neutral((), "some layers are not rotated"),
    "use_mrope": Neutral((False,), "positions have several parts"),
    "alibi": Neutral((False,), "positions are told by a bias"),
    "layer_types": Neutral(_each("full_attention"), "some layers do not attend to all tokens"),
    "use_sliding_window": Neutral((False,), "some layers do not attend to all tokens"),
    "is_causal": Neutral((True,), "tokens see those behind them"),
    "use_bidirectional_attention": Neutral((False,), "tokens see those behind them"),
    "is_encoder_decoder": Neutral((False,), "an encoder"),
    "add_cross_attention": Neutral((False,), "an encoder is attended to"),
    "tie_encoder_decoder": Neutral((False,), "an encoder"),
    "attn_logit_softcapping": Neutral((), "attention scores are capped"),
    "final_logit_softcapping": Neutral((), "logits are capped"),
    "clip_qkv": Neutral((), "queries, keys and values are capped"),
    "query_pre_attn_scalar": Neutral((), "attention scores are scaled otherwise"),
    "attention_multiplier": Neutral((), "attention scores are scaled otherwise"),
    "embedding_multiplier": Neutral((1,), _SCALE),
    "residual_multiplier": Neutral((1,), _SCALE),
    "logits_scaling": Neutral((1,), _SCALE),
    "logit_scale": Neutral((1,), _SCALE),
    "use_qk_norm": Neutral((False,), "queries and keys are normalised"),
    "qk_norm": Neutral((False,), "queries and keys are normalised"),
    "qk_layernorm": Neutral((False,), "queries and keys are normalised"),
    "use_parallel_residual": Neutral((False,), "attention and feed-forward run side by side"),
    "num_local_experts": Neutral((0,), _EXPERTS),
    "num_experts": Neutral((0,), _EXPERTS),
    "n_routed_experts": Neutral((0,), _EXPERTS),
    "num_experts_per_tok": Neutral((0,), _EXPERTS),
    "quantization_config": Neutral((), _STORED),
    "quantization": Neutral((), _STORED),
}  # fmt: skip
