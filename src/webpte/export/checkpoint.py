"""Llama-family checkpoints, GGUF or safetensors with config.json, as ExecuTorch's Llama takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Checkpoint:
    """Architecture, weights by ExecuTorch's names, and what a runner needs to speak the model's language."""

    arguments: Mapping[str, Any]  # of ExecuTorch's ModelArgs
    weights: Mapping[str, torch.Tensor]
    tokenizer: str  # the text of tokenizer.json
    chat_template: str | None
    bos_id: int | None
    eos_ids: tuple[int, ...]


# ExecuTorch's name of a tensor by the last parts of its name in a GGUF file and in Hugging Face's checkpoints.
_LAYER_NAMES = {
    "attn_q": "attention.wq",
    "attn_k": "attention.wk",
    "attn_v": "attention.wv",
    "attn_output": "attention.wo",
    "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2",
    "ffn_up": "feed_forward.w3",
    "attn_norm": "attention_norm",
    "ffn_norm": "ffn_norm",
}
_HF_NAMES = {
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
_GGUF_TOP = {"token_embd": "tok_embeddings", "output_norm": "norm", "output": "output"}
_HF_TOP = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}


def read_checkpoint(path: Path) -> Checkpoint:
    """A .gguf file, or a folder (or a file in it) with config.json and safetensors."""
    if path.suffix == ".gguf":
        from .gguf_file import read_gguf

        return read_gguf(path)
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").exists():
        raise FormatError(f"{path} is neither a .gguf file nor a folder with config.json and safetensors")
    return _read_safetensors(folder)


def executorch_name(name: str) -> str | None:
    """`blk.3.attn_q.weight` -> `layers.3.attention.wq.weight`; None for tensors the model computes itself."""
    stem, _, kind = name.rpartition(".")
    if kind != "weight":
        return None
    if stem in _GGUF_TOP:
        return f"{_GGUF_TOP[stem]}.weight"
    block, _, rest = stem.partition(".")
    number, _, part = rest.partition(".")
    if block == "blk" and part in _LAYER_NAMES:
        return f"layers.{number}.{_LAYER_NAMES[part]}.weight"
    return None


def tie_output(weights: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint without an output head uses the embedding's rows."""
    weights.setdefault("output.weight", weights["tok_embeddings.weight"])
    return weights


def _read_safetensors(folder: Path) -> Checkpoint:
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") not in ("llama", "mistral", "smollm"):
        raise UnsupportedError(
            f"{folder} holds a {config.get('model_type')} model; Llama-family checkpoints are supported"
        )
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    weights: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            translated = _from_hugging_face(name)
            if translated is not None:
                weights[translated] = _interleave(translated, tensor.float(), heads, kv_heads)
    if not weights:
        raise FormatError(f"{folder} has no safetensors with Llama weights")
    arguments = {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "hidden_dim": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "norm_eps": config["rms_norm_eps"],
        "rope_freq_base": config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta", 10000.0),
    }
    eos = config.get("eos_token_id")
    eos_ids: list[int] = eos if isinstance(eos, list) else [] if eos is None else [eos]
    return Checkpoint(
        arguments,
        tie_output(weights),
        _read_text(folder / "tokenizer.json"),
        _chat_template(folder),
        config.get("bos_token_id"),
        tuple(eos_ids),
    )


def _from_hugging_face(name: str) -> str | None:
    stem, _, kind = name.rpartition(".")
    if kind == "weight" and stem in _HF_TOP:
        return f"{_HF_TOP[stem]}.weight"
    parts = stem.split(".", 3)  # model.layers.3.self_attn.q_proj
    if kind == "weight" and len(parts) == 4 and parts[:2] == ["model", "layers"] and parts[3] in _HF_NAMES:
        return executorch_name(f"blk.{parts[2]}.{_HF_NAMES[parts[3]]}.weight")
    return None


def _interleave(name: str, weight: Any, heads: int, kv_heads: int) -> Any:
    """Hugging Face rotates halves, ExecuTorch interleaved pairs: reorder the rows of each head of q and k."""
    if not name.endswith(("wq.weight", "wk.weight")):
        return weight
    count = heads if name.endswith("wq.weight") else kv_heads
    rows, columns = weight.shape
    return weight.view(count, 2, rows // count // 2, columns).transpose(1, 2).reshape(rows, columns)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}") from error


def _chat_template(folder: Path) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.exists():
        return beside.read_text()
    config = folder / "tokenizer_config.json"
    template = json.loads(config.read_text()).get("chat_template") if config.exists() else None
    return template if isinstance(template, str) else None
