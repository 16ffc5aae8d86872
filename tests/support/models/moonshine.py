"""A Moonshine with random weights, saved as transformers saves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .whisper import LETTERS, randomize, write_tokenizer


def tiny_moonshine(folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """2 + 3 layers, 40 wide, with heads of 10 of which 8 rotate. `changes` are of config.json."""
    import torch
    import transformers

    words = [*LETTERS, "Ġ", "<|startoftext|>", "<|endoftext|>"]
    special = {"bos_token_id": len(words) - 2, "decoder_start_token_id": len(words) - 2, "eos_token_id": len(words) - 1}
    sizes = {
        "vocab_size": len(words), "hidden_size": 40, "intermediate_size": 52, "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 3, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
        "max_position_embeddings": 41, "partial_rotary_factor": 0.8,
    }  # fmt: skip
    config = transformers.MoonshineConfig(**{**sizes, **changes}, **special)
    torch.manual_seed(seed)
    model = transformers.MoonshineForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    randomize(model)
    model.save_pretrained(folder)
    features: dict[str, Any] = {"feature_size": 1, "sampling_rate": 16000, "do_normalize": False}
    transformers.Wav2Vec2FeatureExtractor(**features, return_attention_mask=True).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({**special, "max_length": 41}))
    write_tokenizer(folder, words)
    return folder
