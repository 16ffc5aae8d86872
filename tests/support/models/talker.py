"""A Llama with random weights that knows 96 characters: it talks nonsense, and is otherwise like a real one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write_checkpoint(folder: Path) -> None:
    """What people download: config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": len(CHARACTERS),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "eos_token_id": CHARACTERS.index("~"),
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights(), folder / "model.safetensors")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE, "eos_token": "~"}))
    _write_tokenizer(folder / "tokenizer.json")


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def dense(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    kv_width = WIDTH // HEADS * KV_HEADS
    shapes = {
        "self_attn.q_proj": (WIDTH, WIDTH),
        "self_attn.k_proj": (kv_width, WIDTH),
        "self_attn.v_proj": (kv_width, WIDTH),
        "self_attn.o_proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (HIDDEN, WIDTH),
        "mlp.up_proj": (HIDDEN, WIDTH),
        "mlp.down_proj": (WIDTH, HIDDEN),
    }
    weights = {"model.norm.weight": np.ones(WIDTH, np.float32)}
    weights |= {f"{name}.weight": dense(len(CHARACTERS), WIDTH) for name in ("model.embed_tokens", "lm_head")}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {f"{prefix}.{name}.weight": dense(*shape) for name, shape in shapes.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{norm}.weight"] = np.ones(WIDTH, np.float32)
    return weights


def _write_tokenizer(path: Path) -> None:
    """A character per token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path))
