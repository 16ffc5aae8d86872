"""Language models in checkpoints that take images too: transformers saves a tiny one, and its text is compared."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

import webpte
from tests.studies.families.measuring import steps
from tests.support.harness.built_models import difference
from tests.support.harness.errors import raises
from tests.support.models.families import COMMON, CONTEXT, MAX_TOKENS, PREFILL, tinies, tokens, write_tokenizer
from webpte.builder import build_program
from webpte.builder.context import choose_sizes
from webpte.checkpoints.checkpoint import model_kind, read_checkpoint
from webpte.llm import LLM

VISION = {
    "gemma4": {
        "model_type": "gemma4_vision",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
    },
    "mistral3": {
        "model_type": "pixtral",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
}
TEXT = {"gemma4": ("gemma4", 0), "mistral3": ("ministral3", 0)}


@pytest.mark.parametrize("kind", VISION)
def test_text_part_logits_equal_transformers(kind, tmp_path, caplog):
    from transformers import AutoConfig, AutoModelForImageTextToText

    family, number = TEXT[kind]
    tiny = list(tinies()[family].values())[number]
    text = {**COMMON, **tiny.fields, "model_type": tiny.model_type}
    tie = {"tie_word_embeddings": bool(tiny.fields.get("tie_word_embeddings", kind.startswith("gemma")))}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=VISION[kind], **tie)
    torch.manual_seed(3)
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape) * (weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.3))
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path / "tokenizer.json")
    assert model_kind(tmp_path) == "language"
    with caplog.at_level(logging.WARNING):
        read_checkpoint(tmp_path)
    assert "image encoder" in caplog.text
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([tokens()])).logits[0, PREFILL - 1 :].numpy()
    built = build_program(tmp_path, tmp_path / "m.pte", quantize=None, max_context=CONTEXT, max_tokens=MAX_TOKENS)
    with LLM.load(built) as llm, llm.sequence() as sequence:
        got = np.concatenate([sequence.logits(step) for step in steps()])
    assert difference(got, expected) <= 1e-5


def test_published_gemma3_config_takes_the_defaults_of_transformers(tmp_path):
    from webpte.checkpoints.hugging_face import validate_folder

    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "eos_token_id": [1, 106],
        "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model"},
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, model, fields = validate_folder(tmp_path)
    assert (model.vocab_size, model.n_heads, model.n_kv_heads, model.head_dim) == (262208, 8, 4, 256)
    assert [layer.window for layer in model.layers[:6]] == [1024] * 5 + [None] and fields.get("eos_token_id") == [
        1,
        106,
    ]


def test_ministral3_context_ends_where_queries_are_scaled(tmp_path):
    tinies()["ministral3"]["YaRN"].save(tmp_path)
    source = read_checkpoint(tmp_path)
    assert source.context == 64 and choose_sizes(source).max_context == 64
    with raises(webpte.InputError, "65", "Ministral 3", code="max_context"):
        choose_sizes(source, 65)
