"""The keys of a GGUF file that no family reads: which change nothing and why, which would change the mathematics.

What shapes a model stands under its architecture's name, by GGUF's specification.
"""

from __future__ import annotations

from .fields import Neutral

# Tensors that are settings: divisors of rotary frequencies. They are read as fields are.
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

# Namespaces and keys that do not shape the model -> what they tell.
_WITHOUT_EFFECT = {
    "general.": "where the file comes from and how it is stored",
    "tokenizer.": "how text becomes tokens; read for the tokenizer and the chat template",
    "quantize.": "how its weights were rounded",
    "mradermacher.": "who converted it, and when",
    "split.tensors.count": "tensors in all parts of a file; that there is one part is checked",
}

_SCALE = "numbers on the way are scaled by it"
_EXPERTS = "its layers choose among experts"
_FREQUENCIES = "other rotary frequencies than the default"

_RULES: dict[str, Neutral] = {
    "general.type": Neutral(("model",), "the file is not a model of its own"),
    "split.count": Neutral((0, 1), "the model is in several files; merge them with gguf-split"),
    "split.no": Neutral((0,), "the model is in several files; merge them with gguf-split"),
}
# Under the name of the architecture:
_OF_MODELS: dict[str, Neutral] = {
    "rope.scaling.type": Neutral(("none",), _FREQUENCIES),
    "rope.scaling.factor": Neutral((0, 1), _FREQUENCIES),
    "rope.scaling.attn_factor": Neutral((1,), _FREQUENCIES),
    "rope.scaling.original_context_length": Neutral((), _FREQUENCIES),
    "rope.scaling.finetuned": Neutral((False,), _FREQUENCIES),
    "rope.scale_linear": Neutral((0, 1), _FREQUENCIES),
    "attention.causal": Neutral((True,), "tokens see those behind them"),
    "attention.scale": Neutral((0,), "attention scores are scaled otherwise"),
    "attention.clamp_kqv": Neutral((0,), "queries, keys and values are capped"),
    "attention.max_alibi_bias": Neutral((0,), "positions are told by a bias"),
    "attn_logit_softcapping": Neutral((0,), "attention scores are capped"),
    "final_logit_softcapping": Neutral((0,), "logits are capped"),
    "logit_scale": Neutral((0, 1), _SCALE),
    "residual_scale": Neutral((0, 1), _SCALE),
    "embedding_scale": Neutral((0, 1), _SCALE),
    "use_parallel_residual": Neutral((False,), "attention and feed-forward run side by side"),
    "expert_count": Neutral((0,), _EXPERTS),
    "expert_used_count": Neutral((0,), _EXPERTS),
    "tensor_data_layout": Neutral(("Meta AI original pth",), "weights are stored in another order"),
}
_WITHOUT_EFFECT_OF_MODELS = {
    "context_length": "how far it was trained; rotary tables are computed for any position",
    "vocab_size": "the tokens are counted",
}


def harmless(key: str, architecture: str) -> bool:
    if key.startswith(f"{architecture}."):
        return key.removeprefix(f"{architecture}.") in _WITHOUT_EFFECT_OF_MODELS
    return key not in _RULES and key.startswith(tuple(_WITHOUT_EFFECT))


def rules(architecture: str) -> dict[str, Neutral]:
    return _RULES | {f"{architecture}.{key}": rule for key, rule in _OF_MODELS.items()}
