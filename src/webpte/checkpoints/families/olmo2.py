"""OLMo 2: norms after attention and feed-forward instead of before them, and norms of all queries and all keys.

GGUF calls OLMo 3 by the same name. Its files have windows.
"""

from __future__ import annotations

from dataclasses import replace

from ..architecture import Architecture, Rope
from ..config import Fields, decoder_config, decoder_gguf
from ..family import Family
from ..weights import GGUF, HUGGING_FACE, TensorNames
from .gemma2 import windows_of_gguf
from .gemma3 import layers_of_kinds

PATTERN = 4  # every fourth layer of OLMo 3 attends to all tokens
NAMES = TensorNames(
    {
        **HUGGING_FACE.parts,
        "layers.{}.post_attention_norm": "model.layers.{}.post_attention_layernorm",
        "layers.{}.post_ffn_norm": "model.layers.{}.post_feedforward_layernorm",
    }
)
GGUF_NAMES = TensorNames(
    {
        **GGUF.parts,
        "layers.{}.post_attention_norm": "blk.{}.post_attention_norm",
        "layers.{}.post_ffn_norm": "blk.{}.post_ffw_norm",
    }
)


def read_config(fields: Fields) -> Architecture:
    biases = fields.boolean("attention_bias")
    return replace(as_olmo(decoder_config(fields)), qkv_bias=biases, out_bias=biases)


def read_gguf(fields: Fields) -> Architecture:
    model = as_olmo(decoder_gguf(fields))
    if model.layers[0].window is None:
        return model
    sliding = [bool((number + 1) % PATTERN) for number in range(model.n_layers)]
    full = model.ropes["rope"]
    return replace(
        model,
        layers=layers_of_kinds(windows_of_gguf(fields, model.layers[0].window, sliding)),
        ropes={"full_attention": full, "sliding_attention": Rope(full.theta, full.width)},
    )


def as_olmo(model: Architecture) -> Architecture:
    return replace(model, qk_norm=True, qk_norm_by_head=False, pre_norms=False, post_norms=True)


FAMILY = Family(
    name="OLMo 2",
    models="OLMo 2 1B to 32B",
    special="norms after each part only, norms of all queries and all keys",
    model_types=("olmo2",),
    classes=("Olmo2ForCausalLM",),
    config=read_config,
    gguf_types=("olmo2",),
    gguf=read_gguf,
    names=NAMES,
    gguf_names=GGUF_NAMES,
    end_tokens=("<|endoftext|>",),
)
