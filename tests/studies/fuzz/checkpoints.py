"""Checkpoints with correct and changed files, read as an export reads them: GGUF, and folders with safetensors."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.studies.fuzz.changes import changed_bytes, changed_json
from tests.support.models import gguf_talker, talker
from webpte.checkpoints.checkpoint import read_checkpoint

MAX_TENSORS = 4  # tensors that are read of each checkpoint
SENTENCEPIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.pre": None,
    "tokenizer.ggml.merges": None,
    "tokenizer.ggml.scores": [float(-number) for number in range(96)],
    "tokenizer.ggml.token_type": [2, 3, 3, 4, *[1] * 88, *[6] * 4],
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
}


def read(path: Path) -> None:
    source = read_checkpoint(path)
    for name in list(source.weights.sources)[:MAX_TENSORS]:
        source.weights.read(name)


@functools.cache
def scratch() -> Path:
    """Return a folder of this process and those it forks."""
    folder = Path(tempfile.mkdtemp(prefix="webpte-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # children leave without what is registered here
    return folder


@functools.cache
def gguf_files() -> tuple[bytes, ...]:
    """Floats and byte-level BPE; blocks of 4 bits; SentencePiece; rotary factors and halves."""
    factors = {"rope_freqs.weight": np.linspace(1, 2, talker.WIDTH // talker.HEADS // 2, dtype=np.float32)}
    halves = {"token_embd.weight": gguf_talker.tensors()["token_embd.weight"].astype(np.float16)}
    variants: list[dict[str, Any]] = [
        {},
        {"kind": "Q4_1"},
        {"changes": SENTENCEPIECE, "kind": "Q8_0"},
        {"more": factors | halves, "changes": {"tokenizer.ggml.token_type": [1] * 95 + [3]}},
    ]
    return tuple(gguf_talker.write(scratch() / "honest.gguf", **each).read_bytes() for each in variants)


def _strange_fields(random: Random) -> bytes:
    """Keys with values of another type or size, written correctly."""
    values: list[Any] = [True, False, 0, 1, 3, 7, 2**20, 2**31, 2**32 - 1, 0.0, -1.0, 1e30, float("nan"), float("inf")]
    values += ["", "x", "llama", "a b", "\0", [1, 2], [0.5], ["x"], [True], ["a b", "c"], [2**31 - 1] * 50, None]
    names = [*gguf_talker.fields(), "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "general.alignment"]
    names += ["tokenizer.chat_template", "tokenizer.ggml.bos_token_id", "llama.rope.scaling.type", "split.count"]
    names += ["llama.rope.scaling.factor", "llama.attention.sliding_window", "tokenizer.ggml.add_bos_token"]
    changes = {random.choice(names): random.choice(values) for _ in range(random.choice([1, 1, 2, 4]))}
    base = SENTENCEPIECE if random.random() < 0.3 else {}
    path = gguf_talker.write(scratch() / f"fields-{os.getpid()}.gguf", base | changes)
    return path.read_bytes()


def run_gguf(random: Random) -> None:
    if random.random() < 0.2:
        data = _strange_fields(random)
    else:
        honest = random.choice(gguf_files())
        data = changed_bytes(honest, random, header=honest.rindex(b".weight") + 40)
    path = scratch() / f"mutant-{os.getpid()}.gguf"
    path.write_bytes(data)
    read(path)


@functools.cache
def honest_folder() -> Path:
    """Two shards with their index, and what stands beside weights."""
    from safetensors.numpy import save_file

    folder = scratch() / "checkpoint"
    talker.write_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    weights = sorted(talker.weights().items())
    for name, part in zip(names, (weights[:9], weights[9:]), strict=True):
        save_file(dict(part), folder / name)
    shards = {key: names[number >= 9] for number, (key, _) in enumerate(weights)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "max_position_embeddings": 2048}
    config |= {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}}
    config |= {"hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False, "head_dim": 16}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [94, 95]}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "!"}, "eos_token": "~"}))
    return folder


# Of files that other families have: each is read with what the folder has besides.
OTHER_CONFIGS: tuple[dict[str, Any], ...] = (
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}},
    {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"model_type": "phi3", "architectures": None, "partial_rotary_factor": 0.5, "sliding_window": 2047,
     "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
     "original_max_position_embeddings": 512},
    {"model_type": "qwen3_5_text", "architectures": None, "rope_scaling": None, "full_attention_interval": 2,
     "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8},
    {"model_type": "lfm2", "architectures": None, "rope_scaling": None, "norm_eps": 1e-5, "conv_L_cache": 3,
     "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 8, "full_attn_idxs": [1]},
    {"model_type": "gemma3_text", "architectures": None, "rope_scaling": None, "query_pre_attn_scalar": 16,
     "hidden_act": None, "sliding_window": 16},
)  # fmt: skip


def run_folder(random: Random) -> None:
    honest = honest_folder()
    folder = scratch() / f"checkpoint-{os.getpid()}"
    if not folder.exists():
        shutil.copytree(honest, folder)
    configured = honest / "config.json"
    others = [path for path in sorted(honest.iterdir()) if path.suffix in (".json", ".safetensors")]
    path = configured if random.random() < 0.5 else random.choice(others)
    data = path.read_bytes()
    if path == configured and random.random() < 0.5:
        config = json.loads(data) | random.choice(OTHER_CONFIGS)
        data = json.dumps({name: value for name, value in config.items() if value is not None}).encode()
    if path.suffix == ".json" and random.random() < 0.85:
        changed = changed_json(data.decode(), random).encode()
    else:
        changed = changed_bytes(data, random, header=1800)
    (folder / path.name).write_bytes(changed)
    try:
        read(folder)
    finally:
        shutil.copyfile(path, folder / path.name)
