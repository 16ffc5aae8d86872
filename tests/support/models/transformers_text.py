"""Text architectures of `transformers`, tiny and with seeded random weights: encoders, and decoders without a cache."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch.export import Dim

from ..export.lowering import Inputs, Model
from .transformers import export_model

VOCABULARY = 97
TOKENS = (31, 17, 5)  # the bound first


def build(name: str, transformers: str) -> Model:
    """The model called `name`; `transformers` is the version it comes from, which makes it part of the cache key."""
    return globals()[name]()


def text(config: Any, make: Any, outputs: tuple[str, ...], *, mask: bool = True, batch: int = 2) -> Model:
    """A model of token ids (B, T <= 31) and perhaps of a mask, which hides the end of every second row."""
    names = ("input_ids", "attention_mask") if mask else ("input_ids",)

    def step(tokens: int) -> Inputs:
        ids = torch.randint(3, VOCABULARY, (batch, tokens))
        keep = torch.ones_like(ids)
        keep[1::2, tokens * 2 // 3 :] = 0
        return (ids, keep) if mask else (ids,)

    dims = ({1: Dim("tokens", min=2, max=TOKENS[0])},) * len(names)
    return export_model(make, config, names, outputs, [step(n) for n in TOKENS], step(11), dims)


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
}

# ---------------------------------------------------------------- encoders


def bert() -> Model:
    return text(hf.BertConfig(**SIZES), hf.BertModel, ("last_hidden_state", "pooler_output"))


def roberta() -> Model:
    """Its positions are a running sum over the tokens that are not padding."""
    return text(hf.RobertaConfig(**SIZES), hf.RobertaForMaskedLM, ("logits",))


def mpnet() -> Model:
    """Attention with a bias by relative position, in buckets."""
    return text(hf.MPNetConfig(**SIZES), hf.MPNetModel, ("last_hidden_state",))


def deberta() -> Model:
    """Attention that keeps content and position apart."""
    config = hf.DebertaV2Config(**SIZES, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"])
    return text(config, hf.DebertaV2Model, ("last_hidden_state",))


def t5_encoder() -> Model:
    config = hf.T5Config(
        vocab_size=VOCABULARY, d_model=48, d_kv=16, d_ff=80, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu"
    )
    return text(config, hf.T5EncoderModel, ("last_hidden_state",))


def clip_text() -> Model:
    config = hf.CLIPTextConfig(**SIZES, projection_dim=32, eos_token_id=2, bos_token_id=1, pad_token_id=0)
    return text(config, hf.CLIPTextModelWithProjection, ("text_embeds", "last_hidden_state"))


# ---------------------------------------------------------------- decoders: logits of every token

GROUPED = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "use_cache": False}


def gpt2() -> Model:
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=48, n_layer=2, n_head=3, use_cache=False)
    return text(config, hf.GPT2LMHeadModel, ("logits",), mask=False, batch=1)


def llama() -> Model:
    return text(hf.LlamaConfig(**GROUPED), hf.LlamaForCausalLM, ("logits",), mask=False)


def gemma3() -> Model:
    """Every second layer sees only a window of the last tokens."""
    config = hf.Gemma3TextConfig(**GROUPED, sliding_window=6, layer_types=["sliding_attention", "full_attention"])
    return text(config, hf.Gemma3ForCausalLM, ("logits",), mask=False)
