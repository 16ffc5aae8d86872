"""Language models of `transformers` without a cache, tiny, with random weights: logits of every token.

Those of tests/support/models/transformers_text.py are run by tests/contract/test_architectures.py.
"""

from typing import Any

import torch
import transformers as hf
from torch.export import Dim

from tests.support.models.transformers import Outputs, lively

from ..building import Case, case, program

VOCABULARY = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
    "use_cache": False,
}
GROUPED = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}
HEADS = GROUPED | {"head_dim": 16}


def logits(config: Any, make: Any) -> Case:
    """Token ids (1, T <= 31), attention as the library chooses it."""
    hf.logging.set_verbosity_error()
    model = Outputs(lively(make(config)), ("input_ids",), ("logits",))
    steps = [(torch.randint(3, VOCABULARY, (1, n)),) for n in (31, 11, 2, 5, 17)]
    return case(model, steps, {1: Dim("t", min=2, max=31)})


@program
def qwen2() -> Case:
    return logits(hf.Qwen2Config(**GROUPED), hf.Qwen2ForCausalLM)


@program
def qwen3() -> Case:
    return logits(hf.Qwen3Config(**HEADS), hf.Qwen3ForCausalLM)


@program
def gemma() -> Case:
    return logits(hf.GemmaConfig(**HEADS), hf.GemmaForCausalLM)


@program
def gemma2() -> Case:
    """Every second layer sees a window of six tokens."""
    return logits(hf.Gemma2Config(**HEADS, sliding_window=6), hf.Gemma2ForCausalLM)


@program
def phi() -> Case:
    return logits(hf.PhiConfig(**GROUPED), hf.PhiForCausalLM)


@program
def phi3() -> Case:
    return logits(hf.Phi3Config(**GROUPED, pad_token_id=0), hf.Phi3ForCausalLM)


@program
def llama32() -> Case:
    """Scaled rotary embeddings."""
    scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope = scaling | {"original_max_position_embeddings": 32, "rope_theta": 5e5}
    return logits(hf.LlamaConfig(**HEADS, rope_parameters=rope), hf.LlamaForCausalLM)


@program
def smollm3() -> Case:
    return logits(hf.SmolLM3Config(**GROUPED, pad_token_id=0), hf.SmolLM3ForCausalLM)


@program
def mistral() -> Case:
    """A window of seven tokens."""
    return logits(hf.MistralConfig(**HEADS, sliding_window=7), hf.MistralForCausalLM)


@program
def mixtral() -> Case:
    """Four experts, gathered for each token: the grouped products of the default have no out-variant."""
    config = hf.MixtralConfig(**HEADS, num_local_experts=4)
    config._experts_implementation = "batched_mm"
    return logits(config, hf.MixtralForCausalLM)


@program
def qwen3moe() -> Case:
    """Four experts, two per token."""
    experts: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = hf.Qwen3MoeConfig(**HEADS, **experts)
    config._experts_implementation = "batched_mm"
    return logits(config, hf.Qwen3MoeForCausalLM)


@program
def olmo2() -> Case:
    return logits(hf.Olmo2Config(**GROUPED), hf.Olmo2ForCausalLM)


@program
def granite() -> Case:
    return logits(hf.GraniteConfig(**GROUPED), hf.GraniteForCausalLM)


@program
def gptneox() -> Case:
    """Rotary embeddings of a quarter of each head."""
    return logits(hf.GPTNeoXConfig(**SIZES), hf.GPTNeoXForCausalLM)


@program
def opt() -> Case:
    sizes = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
    return logits(hf.OPTConfig(**sizes, ffn_dim=80, word_embed_proj_dim=48), hf.OPTForCausalLM)


LAYERS: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 48, "use_cache": False}


@program
def falcon() -> Case:
    return logits(hf.FalconConfig(**LAYERS, num_hidden_layers=2, num_attention_heads=3), hf.FalconForCausalLM)


@program
def bloom() -> Case:
    """Positions as slopes of the attention."""
    return logits(hf.BloomConfig(**LAYERS, n_layer=2, n_head=3), hf.BloomForCausalLM)


@program
def mamba() -> Case:
    """A state-space model."""
    return logits(hf.MambaConfig(**LAYERS, num_hidden_layers=2, state_size=4), hf.MambaForCausalLM)


@program
def lfm2() -> Case:
    """Convolutions and one layer of attention."""
    sizes = {k: v for k, v in GROUPED.items() if k != "num_hidden_layers"}
    return logits(hf.Lfm2Config(**sizes, num_hidden_layers=3, full_attn_idxs=[1]), hf.Lfm2ForCausalLM)


@program
def stablelm() -> Case:
    """Rotary embeddings of a part of each head, and layer norms."""
    return logits(hf.StableLmConfig(**SIZES | {"num_hidden_layers": 1}, num_key_value_heads=3), hf.StableLmForCausalLM)


@program
def gptj() -> Case:
    sizes: dict[str, Any] = {"n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 3, "rotary_dim": 8}
    return logits(hf.GPTJConfig(vocab_size=VOCABULARY, **sizes, use_cache=False), hf.GPTJForCausalLM)


@program
def gpt_neo() -> Case:
    """Local and global attention in turn."""
    sizes: dict[str, Any] = {"hidden_size": 48, "num_layers": 2, "num_heads": 3, "intermediate_size": 80}
    kinds: dict[str, Any] = {"attention_types": [[["global", "local"], 1]], "window_size": 6}
    config = hf.GPTNeoConfig(vocab_size=VOCABULARY, max_position_embeddings=64, **sizes, **kinds, use_cache=False)
    return logits(config, hf.GPTNeoForCausalLM)


@program
def cohere() -> Case:
    """Attention and feed-forward beside one another."""
    return logits(hf.CohereConfig(**GROUPED | {"num_hidden_layers": 1}, pad_token_id=0), hf.CohereForCausalLM)


@program
def starcoder2() -> Case:
    return logits(hf.Starcoder2Config(**GROUPED | {"num_hidden_layers": 1}), hf.Starcoder2ForCausalLM)


@program
def olmo() -> Case:
    return logits(hf.OlmoConfig(**GROUPED | {"num_hidden_layers": 1}), hf.OlmoForCausalLM)


@program
def glm() -> Case:
    return logits(hf.GlmConfig(**HEADS | {"num_hidden_layers": 1}, pad_token_id=0), hf.GlmForCausalLM)


@program
def exaone4() -> Case:
    return logits(hf.Exaone4Config(**GROUPED, sliding_window=6, sliding_window_pattern=2), hf.Exaone4ForCausalLM)


@program
def ernie45() -> Case:
    return logits(hf.Ernie4_5Config(**GROUPED | {"num_hidden_layers": 1}, pad_token_id=0), hf.Ernie4_5ForCausalLM)


@program
def helium() -> Case:
    return logits(
        hf.HeliumConfig(**GROUPED | {"num_hidden_layers": 1}, head_dim=12, pad_token_id=0), hf.HeliumForCausalLM
    )


@program
def nemotron() -> Case:
    """Squared ReLU and layer norms with an offset."""
    return logits(hf.NemotronConfig(**HEADS | {"num_hidden_layers": 1}), hf.NemotronForCausalLM)
