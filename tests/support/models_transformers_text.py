"""Text architectures of `transformers`, tiny and with seeded random weights: encoders and decoders without a cache."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch.export import Dim

from .export_lowering import Inputs, Model, forward
from .models_transformers import Outputs, lively

BOUND = 31  # tokens
VOCABULARY = 97
TOKENS = (BOUND, 17, 5)


def text(config: Any, make: Any, outputs: tuple[str, ...], *, mask: bool = True, batch: int = 2, **more: Any) -> Model:
    """A model of token ids (B, T <= 31) and, unless it is causal, of a mask that hides the end of every second row."""
    config._attn_implementation = "eager"
    names = ("input_ids", "attention_mask") if mask else ("input_ids",)
    module = Outputs(lively(make(config, **more)), names, outputs)

    def step(tokens: int) -> Inputs:
        ids = torch.randint(3, VOCABULARY, (batch, tokens))
        keep = torch.ones_like(ids)
        keep[1::2, tokens * 2 // 3 :] = 0
        return (ids, keep) if mask else (ids,)

    dims = ({1: Dim("tokens", min=2, max=BOUND)},) * len(names)
    return forward(module, step(11), [[step(n) for n in TOKENS]], dynamic_shapes=dims, strict=False)


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
}


def bert() -> Model:
    return text(hf.BertConfig(**SIZES), hf.BertModel, ("last_hidden_state", "pooler_output"))


def distilbert() -> Model:
    config = hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=48, hidden_dim=80, n_layers=2, n_heads=3, max_position_embeddings=64, num_labels=5
    )
    return text(config, hf.DistilBertForSequenceClassification, ("logits",))


def roberta() -> Model:
    config = hf.RobertaConfig(**SIZES)
    return text(config, hf.RobertaForMaskedLM, ("logits",))


def mpnet() -> Model:
    return text(hf.MPNetConfig(**SIZES), hf.MPNetModel, ("last_hidden_state",))


def albert() -> Model:
    config = hf.AlbertConfig(**SIZES, embedding_size=16)
    return text(config, hf.AlbertModel, ("last_hidden_state",))


def electra() -> Model:
    config = hf.ElectraConfig(**SIZES, embedding_size=16, num_labels=7)
    return text(config, hf.ElectraForTokenClassification, ("logits",))


def modernbert() -> Model:
    config = hf.ModernBertConfig(**SIZES, pad_token_id=0, local_attention=8, global_attn_every_n_layers=2)
    return text(config, hf.ModernBertModel, ("last_hidden_state",))


def deberta() -> Model:
    config = hf.DebertaV2Config(
        **SIZES, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"], max_relative_positions=-1
    )
    return text(config, hf.DebertaV2Model, ("last_hidden_state",))


def t5_encoder() -> Model:
    config = hf.T5Config(
        vocab_size=VOCABULARY, d_model=48, d_kv=16, d_ff=80, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu"
    )
    return text(config, hf.T5EncoderModel, ("last_hidden_state",))


def clip_text() -> Model:
    config = hf.CLIPTextConfig(**SIZES, projection_dim=32, eos_token_id=2, bos_token_id=1, pad_token_id=0)
    return text(config, hf.CLIPTextModelWithProjection, ("text_embeds", "last_hidden_state"))


# ---------------------------------------------------------------- decoders


def decoder(config: Any, make: Any, batch: int = 2) -> Model:
    """Logits of every token, without a cache."""
    config.use_cache = False
    return text(config, make, ("logits",), mask=False, batch=batch)


def gpt2() -> Model:
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=48, n_layer=2, n_head=3)
    return decoder(config, hf.GPT2LMHeadModel, batch=1)


def opt() -> Model:
    config = hf.OPTConfig(
        vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, ffn_dim=80, num_attention_heads=3,
        max_position_embeddings=64, word_embed_proj_dim=48,
    )  # fmt: skip
    return decoder(config, hf.OPTForCausalLM)


def bloom() -> Model:
    return decoder(hf.BloomConfig(vocab_size=VOCABULARY, hidden_size=48, n_layer=2, n_head=3), hf.BloomForCausalLM)


GROUPED = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def llama() -> Model:
    return decoder(hf.LlamaConfig(**GROUPED), hf.LlamaForCausalLM)


def qwen2() -> Model:
    return decoder(hf.Qwen2Config(**SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}), hf.Qwen2ForCausalLM)


def qwen3() -> Model:
    return decoder(hf.Qwen3Config(**GROUPED), hf.Qwen3ForCausalLM)


def gemma() -> Model:
    return decoder(hf.GemmaConfig(**GROUPED), hf.GemmaForCausalLM)


def gemma3() -> Model:
    config = hf.Gemma3TextConfig(**GROUPED, sliding_window=6, layer_types=["sliding_attention", "full_attention"])
    return decoder(config, hf.Gemma3ForCausalLM)


def phi3() -> Model:
    config = hf.Phi3Config(**SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}, pad_token_id=0)
    return decoder(config, hf.Phi3ForCausalLM)


def mamba() -> Model:
    config = hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers=2)
    return decoder(config, hf.MambaForCausalLM)


def build(name: str, transformers: str) -> Model:
    """The model called `name`; `transformers` is the version it comes from, which makes it part of the cache key."""
    return globals()[name]()
