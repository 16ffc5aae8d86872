"""Checkpoints of real sizes with random weights, written one tensor at a time: bf16, as people download them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LLAMA_1B: dict[str, Any] = {  # Llama-3.2-1B
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
}
BLOCK = 1 << 22  # weights made at once


def write_checkpoint(folder: Path, config: dict[str, Any]) -> int:
    """Returns how many weights it has."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    _write_tokenizer(folder / "tokenizer.json", config["vocab_size"])
    shapes = llama_shapes(config)
    _write_tensors(folder / "model.safetensors", shapes)
    return sum(int(np.prod(shape)) for shape in shapes.values())


def llama_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    width, hidden = config["hidden_size"], config["intermediate_size"]
    size = config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    parts: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (hidden, width),
        "mlp.up_proj": (hidden, width),
        "mlp.down_proj": (width, hidden),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in parts.items()}
    return shapes | {"model.norm.weight": (width,)}


def _write_tensors(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for seed, shape in enumerate(shapes.values()):
            for values in _values(shape, seed):
                file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())  # f32 cut to bf16


def _values(shape: tuple[int, ...], seed: int) -> Iterator[np.ndarray]:
    """Norms around one, matrices that keep the size of what they multiply."""
    random = np.random.default_rng(seed)
    left = int(np.prod(shape))
    scale, middle = (0.1, 1.0) if len(shape) == 1 else (shape[1] ** -0.5, 0.0)
    while left:
        count = min(left, BLOCK)
        yield random.standard_normal(count, np.float32) * np.float32(scale) + np.float32(middle)
        left -= count


def _write_tokenizer(path: Path, count: int) -> None:
    """A word of its own for every token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(count)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))
