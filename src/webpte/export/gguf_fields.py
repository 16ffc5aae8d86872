"""The metadata of a GGUF file: which keys are read, which change nothing and why, which would change the mathematics.

What shapes a model stands under its architecture's name, by GGUF's specification.
"""

from __future__ import annotations

from .fields import Neutral

READ = (
    "llama.embedding_length", "llama.block_count", "llama.attention.head_count", "llama.attention.head_count_kv",
    "llama.feed_forward_length", "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
    "llama.attention.sliding_window", "llama.vocab_size",
)  # fmt: skip

# Namespaces and keys that do not shape the model -> what they tell.
_WITHOUT_EFFECT = {
    "general.": "where the file comes from and how it is stored",
    "tokenizer.": "how text becomes tokens; read for the tokenizer and the chat template",
    "quantize.": "how its weights were rounded",
    "mradermacher.": "who converted it, and when",
    "GGUF.": "the file's own counts, which the reader adds",
    "split.tensors.count": "tensors in all parts of a file; that there is one part is checked",
    "llama.context_length": "how far it was trained; rotary tables are computed for any position",
}

_SCALE = "numbers on the way are scaled by it"
_EXPERTS = "its layers choose among experts"
_FREQUENCIES = "other rotary frequencies than the default"

RULES: dict[str, Neutral] = {
    "general.type": Neutral(("model",), "the file is not a model of its own"),
    "split.count": Neutral((0, 1), "the model is in several files; merge them with gguf-split"),
    "split.no": Neutral((0,), "the model is in several files; merge them with gguf-split"),
    "llama.rope.scaling.type": Neutral(("none",), _FREQUENCIES),
    "llama.rope.scaling.factor": Neutral((0, 1), _FREQUENCIES),
    "llama.rope.scaling.attn_factor": Neutral((1,), _FREQUENCIES),
    "llama.rope.scaling.original_context_length": Neutral((), _FREQUENCIES),
    "llama.rope.scaling.finetuned": Neutral((False,), _FREQUENCIES),
    "llama.rope.scale_linear": Neutral((0, 1), _FREQUENCIES),
    "llama.attention.causal": Neutral((True,), "tokens see those behind them"),
    "llama.attention.scale": Neutral((0,), "attention scores are scaled otherwise"),
    "llama.attention.clamp_kqv": Neutral((0,), "queries, keys and values are capped"),
    "llama.attention.max_alibi_bias": Neutral((0,), "positions are told by a bias"),
    "llama.attn_logit_softcapping": Neutral((0,), "attention scores are capped"),
    "llama.final_logit_softcapping": Neutral((0,), "logits are capped"),
    "llama.logit_scale": Neutral((0, 1), _SCALE),
    "llama.residual_scale": Neutral((0, 1), _SCALE),
    "llama.embedding_scale": Neutral((0, 1), _SCALE),
    "llama.use_parallel_residual": Neutral((False,), "attention and feed-forward run side by side"),
    "llama.expert_count": Neutral((0,), _EXPERTS),
    "llama.expert_used_count": Neutral((0,), _EXPERTS),
    "llama.tensor_data_layout": Neutral(("Meta AI original pth",), "weights are stored in another order"),
}


def harmless(key: str) -> bool:
    return key in READ or (key not in RULES and key.startswith(tuple(_WITHOUT_EFFECT)))


def of_heads(size: float) -> dict[str, Neutral]:
    """Keys that must agree with the size of a head."""
    of_another_size = Neutral((size,), f"heads of another size than embedding_length / head_count, {size:g}")
    return {
        "llama.attention.key_length": of_another_size,
        "llama.attention.value_length": of_another_size,
        "llama.rope.dimension_count": Neutral((size,), f"only a part of each head of {size:g} is rotated"),
    }
