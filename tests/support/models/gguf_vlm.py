"""The tiny SmolVLM as two GGUF files, and the encoders of the tiny LFM2-VL and Gemma 3, as converters write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .gguf_families import keys, permuted, tensor_names
from .gguf_talker import add
from .tiny_vlm import CHARACTERS, PROCESSOR, SIDE, SPECIAL, TEMPLATE

CONTROL = 3  # of tokenizer.ggml.token_type
PROJECTORS = {"lfm2_vl": "lfm2", "gemma3": "gemma3"}  # model_type -> clip.projector_type


def write_model(checkpoint: Path, path: Path, tokens: list[str] | None = None) -> Path:
    """Write the language model of a checkpoint."""
    config = json.loads((checkpoint / "config.json").read_text())["text_config"]
    names = tensor_names(config)
    tensors = {}
    for name, weight in weights(checkpoint).items():
        if "vision_model" not in name and "connector" not in name:
            name = name.replace("model.text_model.", "model.")
            tensors[names(name)] = permuted(name, weight, config)
    texts = [{" ": "\u0120", "\n": "\u010a"}.get(text, text) for text in CHARACTERS] + (tokens or SPECIAL[:-1])
    tokenizer = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*texts, "he"],  # a merge is needed, in the place of a tile that no image has
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.token_type": [1] * len(CHARACTERS) + [CONTROL] * (len(SPECIAL) - 1) + [1],
        "tokenizer.chat_template": TEMPLATE,
    }
    metadata = {"general.type": "model", **{f"llama.{key}": value for key, value in keys(config).items()}}
    return write(path, "llama", metadata | tokenizer, tensors)


def write_encoder(checkpoint: Path, path: Path, changes: Mapping[str, Any] | None = None, older: bool = False) -> Path:
    """Write the image encoder of a checkpoint. `changes` replace keys, or remove them where they are None.

    With `older`, the layers of a feed-forward have the names of files from before May 2025.
    """
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    tower, text = config["vision_config"], config["text_config"]
    kind = config["model_type"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, tower["num_hidden_layers"] + 1)
    tensors = {}
    for name, weight in weights(checkpoint).items():
        if any(part in name for part in ("vision_model", "vision_tower", "connector", "multi_modal_projector")):
            if ".head." in name:  # which published files do not have
                continue
            if kind in PROJECTORS:
                name = name.replace("vision_tower.vision_model.", "vision_tower.").removeprefix("model.")
                name = name.replace("vision_tower.", "vision_tower.vision_model.")
                name = name.replace("_projection_weight", "_projection.weight")
                if "soft_emb_norm" in name:
                    weight = weight + 1
                if kind == "lfm2_vl" and name.endswith("patch_embedding.weight"):
                    side = tower["patch_size"]
                    weight = weight.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
            theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert theirs is not None, name
            if older:
                theirs = theirs.replace("ffn_up", "x").replace("ffn_down", "ffn_up").replace("x", "ffn_down")
            tensors[theirs] = weight
    vision = gguf.Keys.ClipVision
    metadata = {
        "general.type": "mmproj",
        "general.file_type": 0,
        gguf.Keys.Clip.HAS_VISION_ENCODER: True,
        gguf.Keys.Clip.PROJECTOR_TYPE: PROJECTORS.get(kind, "idefics3"),
        vision.PROJECTION_DIM: text["hidden_size"],
        vision.IMAGE_SIZE: tower.get("image_size", 256),
        vision.PATCH_SIZE: tower["patch_size"],
        vision.EMBEDDING_LENGTH: tower["hidden_size"],
        vision.FEED_FORWARD_LENGTH: tower["intermediate_size"],
        vision.BLOCK_COUNT: tower["num_hidden_layers"],
        vision.Attention.HEAD_COUNT: tower["num_attention_heads"],
        vision.Attention.LAYERNORM_EPS: float(tower["layer_norm_eps"]),
        vision.IMAGE_MEAN: PROCESSOR["image_mean"],
        vision.IMAGE_STD: PROCESSOR["image_std"],
        vision.Projector.SCALE_FACTOR: config.get("downsample_factor", config.get("scale_factor")),
        vision.USE_GELU: True,
        vision.PREPROC_IMAGE_SIZE: None if kind in PROJECTORS else 2 * SIDE,
    }
    return write(path, "clip", metadata | dict(changes or {}), tensors)


def weights(checkpoint: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(checkpoint / "model.safetensors")


def write(path: Path, architecture: str, values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        if value is not None:
            add(writer, key, value)
    for name, weight in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
