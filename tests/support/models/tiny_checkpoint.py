"""The smallest checkpoint of a language model that is built in less than a second, and answers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.families import write_tokenizer

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_checkpoint(folder: Path) -> None:
    """Write config.json, weights and a tokenizer."""
    shapes = {"model.embed_tokens": (96, 64), "model.norm": (64,)}
    for number in range(2):
        layer = f"model.layers.{number}"
        shapes |= {f"{layer}.self_attn.{part}_proj": (64 if part in "qo" else 32, 64) for part in "qkvo"}
        shapes |= {f"{layer}.mlp.gate_proj": (128, 64), f"{layer}.mlp.up_proj": (128, 64)}
        shapes |= {f"{layer}.mlp.down_proj": (64, 128)}
        shapes |= {f"{layer}.input_layernorm": (64,), f"{layer}.post_attention_layernorm": (64,)}
    random = np.random.default_rng(0)
    arrays = {f"{name}.weight": random.standard_normal(shape).astype("<f4") for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tokenizer(folder / "tokenizer.json")


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write tensors of f32 in a file of their own format."""
    offset, header = 0, {}
    for name, array in arrays.items():
        end = offset + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values()))
