"""ERNIE 4.5: a Llama whose queries and keys rotate as neighbors in the checkpoint too."""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import GGUF_IN_PAIRS, HUGGING_FACE, TensorNames


def read_config(fields: Fields) -> Architecture:
    model = decoder_config(fields, tied=True, head_dim=128, kv_heads=2, theta=500000.0)
    biases = fields.boolean("use_bias")
    return replace(model, qkv_bias=biases, out_bias=biases, mlp_bias=biases)


FAMILY = Family(
    name="ERNIE 4.5",
    models="ERNIE 4.5 0.3B; larger ones are mixtures of experts and are not supported",
    special="rotation of neighboring elements",
    model_types=("ernie4_5",),
    classes=("Ernie4_5ForCausalLM",),
    config=read_config,
    gguf_types=("ernie4_5",),
    gguf=decoder_gguf,
    names=TensorNames(HUGGING_FACE.parts, halves=False),
    gguf_names=GGUF_IN_PAIRS,
    end_tokens=("<|im_end|>", "</s>"),
)
