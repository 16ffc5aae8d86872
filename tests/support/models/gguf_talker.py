"""The talker as a GGUF file: the same weights, q and k permuted as converters do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import talker

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.down_proj": "ffn_down",
    "mlp.up_proj": "ffn_up",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def fields() -> dict[str, Any]:
    """As llama.cpp's converter writes them."""
    return {
        "general.type": "model",
        "general.name": "talker",
        "general.file_type": 0,
        "llama.context_length": 2048,
        "llama.embedding_length": talker.WIDTH,
        "llama.block_count": talker.LAYERS,
        "llama.feed_forward_length": talker.HIDDEN,
        "llama.attention.head_count": talker.HEADS,
        "llama.attention.head_count_kv": talker.KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.attention.key_length": talker.WIDTH // talker.HEADS,
        "llama.attention.value_length": talker.WIDTH // talker.HEADS,
        "llama.rope.dimension_count": talker.WIDTH // talker.HEADS,
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": len(talker.CHARACTERS),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*map(chr, range(33, 32 + len(talker.CHARACTERS))), "he"],
        "tokenizer.ggml.token_type": [1] * len(talker.CHARACTERS),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.eos_token_id": talker.CHARACTERS.index("~"),
    }


def tensors() -> dict[str, np.ndarray]:
    return {_renamed(name): _permuted(name, weight) for name, weight in talker.weights().items()}


def _renamed(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _TOP:
        return f"{_TOP[stem]}.weight"
    _, _, number, part = stem.split(".", 3)
    return f"blk.{number}.{_NAMES[part]}.weight"


def _permuted(name: str, weight: np.ndarray) -> np.ndarray:
    """Rotary pairs beside each other, where Hugging Face has them half a head apart."""
    if "q_proj" not in name and "k_proj" not in name:
        return weight
    heads = talker.HEADS if "q_proj" in name else talker.KV_HEADS
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(
    path: Path,
    changes: Mapping[str, Any] | None = None,
    more: Mapping[str, np.ndarray | None] | None = None,
    architecture: str = "llama",
    kind: str | None = None,
) -> Path:
    """`changes` are metadata added, replaced or, where None, left out; `more` are tensors likewise.

    Matrices are quantized as `kind`, such as "Q4_1", where it is given.
    """
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (fields() | dict(changes or {})).items():
        if value is not None:
            add(writer, key, value)
    for name, weight in (tensors() | dict(more or {})).items():
        if weight is not None and kind is not None and weight.ndim == 2:
            stored = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(weight.astype(np.float32), stored), raw_dtype=stored)
        elif weight is not None:
            writer.add_tensor(name, np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: Any, key: str, value: Any) -> None:
    adds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    if isinstance(value, list):
        writer.add_array(key, value)
    else:
        adds[type(value)](key, value)
