"""Apertus: a feed-forward without a gate, with an activation (xIELU) that has two learned numbers in each layer."""

from __future__ import annotations

from dataclasses import replace

from ...llm.tool_shapes import ToolFormat
from ..architecture import Architecture
from ..config import FieldRule, Fields, decoder_config
from ..family import Family
from ..weights import HUGGING_FACE, XIELU_BETA, TensorNames

_NAMES = {
    "layers.{}.attention_norm": "model.layers.{}.attention_layernorm",
    "layers.{}.ffn_norm": "model.layers.{}.feedforward_layernorm",
    "layers.{}.feed_forward": "model.layers.{}.mlp.act_fn",
}


def read_config(fields: Fields) -> Architecture:
    biases = fields.boolean("attention_bias")
    model = decoder_config(fields, activation="xielu", theta=12000000.0)
    return replace(model, qkv_bias=biases, out_bias=biases, qk_norm=True, gated_mlp=False)


FAMILY = Family(
    name="Apertus",
    models="Apertus 8B and 70B",
    special="the activation xIELU, a feed-forward without a gate, norms of queries and keys",
    model_types=("apertus",),
    classes=("ApertusForCausalLM",),
    config=read_config,
    rules={
        "post_norm": FieldRule((False,), "norms after attention and feed-forward"),
        "qk_norm": FieldRule((True,), "queries and keys are normalized here"),
    },
    names=TensorNames({**HUGGING_FACE.parts, **_NAMES}),
    # The second keeps CUDA's exponential away from 0.
    fixed_tensors={"model.layers.*.mlp.act_fn.beta": XIELU_BETA, "model.layers.*.mlp.act_fn.eps": -1e-6},
    end_tokens=("<|assistant_end|>", "</s>"),
    tool_formats={"<|tools_prefix|>": ToolFormat("keyed", "<|tools_prefix|>", "<|tools_suffix|>")},
)
