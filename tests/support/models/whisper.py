"""Whispers with random weights, saved as transformers saves them: config, generation config, features, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

LETTERS = [chr(code) for code in range(33, 127)]
LANGUAGES = ("en", "de", "fr", "hi")
SAMPLES = 16000  # a second, which is a window of the tiny one


def tiny_whisper(folder: Path, *, english: bool = False, seed: int = 0, **changes: Any) -> Path:
    """2 + 2 layers, 32 wide, that hears a second at once. `changes` are of config.json."""
    words = _words(1.0, english)
    sizes = {
        "vocab_size": len(words), "num_mel_bins": 16, "d_model": 32, "max_source_positions": 50,
        "max_target_positions": 40, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    }  # fmt: skip
    return save_whisper(folder, words, {**sizes, **changes}, english, seconds=1, seed=seed)


def real_whisper(folder: Path) -> Path:
    """Of the shape of whisper-tiny: 4 + 4 layers, 384 wide, 51,865 tokens, 30 seconds."""
    words = _words(30.0, False)
    filled = [f"w{number}" for number in range(51_865 - len(words))]
    return save_whisper(folder, [*filled, *words], {"vocab_size": 51_865}, False, seconds=30, seed=0)


def save_whisper(folder: Path, words: list[str], sizes: dict[str, Any], english: bool, seconds: int, seed: int) -> Path:
    import torch
    import transformers

    numbers = {word: number for number, word in enumerate(words)}
    end, start = numbers["<|endoftext|>"], numbers["<|startoftranscript|>"]
    special = {"pad_token_id": end, "bos_token_id": end, "eos_token_id": end, "decoder_start_token_id": start}
    config = transformers.WhisperConfig(**sizes, **special, begin_suppress_tokens=None)
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    randomize(model)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=seconds).save_pretrained(folder)
    write_tokenizer(folder, words)
    generation: dict[str, Any] = {
        **special,
        "no_timestamps_token_id": numbers["<|notimestamps|>"],
        "max_length": config.max_target_positions,
        "suppress_tokens": [3, 5, numbers["<|nospeech|>"], start],
        "begin_suppress_tokens": [1, end],
        "max_initial_timestamp_index": 20,
        "is_multilingual": not english,
    }
    if not english:
        generation["lang_to_id"] = {f"<|{code}|>": numbers[f"<|{code}|>"] for code in LANGUAGES}
        generation["task_to_id"] = {task: numbers[f"<|{task}|>"] for task in ("transcribe", "translate")}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def _words(seconds: float, english: bool) -> list[str]:
    languages = () if english else LANGUAGES
    marks = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev",
             "nospeech", "notimestamps"]  # fmt: skip
    stamps = [f"{step * 0.02:.2f}" for step in range(round(seconds / 0.02) + 1)]
    return [*LETTERS, "Ġ", *(f"<|{mark}|>" for mark in (*marks, *stamps))]


def randomize(model: Any) -> None:
    """Norms away from one, biases away from zero, and logits far enough apart for one most probable token."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm.weight" in name.replace("layernorm", "norm"):
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
            elif name.endswith("bias"):
                parameter.copy_(0.1 * torch.randn_like(parameter))
            elif "embed" not in name:
                parameter.copy_(1.5 * torch.randn_like(parameter) / parameter[0].numel() ** 0.5)
            elif "decoder" in name:
                parameter.copy_(0.5 * torch.randn_like(parameter))


def write_tokenizer(folder: Path, words: list[str]) -> None:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    plain = {word: number for number, word in enumerate(words) if not word.startswith("<|")}
    inner = tokenizers.Tokenizer(models.BPE(vocab=plain, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    marks = [word for word in words if word.startswith("<|")]
    inner.add_special_tokens([tokenizers.AddedToken(word, special=True) for word in marks if not word[2].isdigit()])
    inner.add_tokens([tokenizers.AddedToken(word, special=False) for word in marks if word[2].isdigit()])
    inner.save(str(folder / "tokenizer.json"))


def sound(kind: str, seconds: float, seed: int = 0) -> np.ndarray:
    """Synthetic audio at 16 kHz: "noise", or "tones" that change with some noise below them."""
    random = np.random.default_rng(seed)
    times = np.arange(round(seconds * SAMPLES)) / SAMPLES
    noise = random.normal(0, 0.1, len(times))
    if kind == "noise":
        return noise.astype(np.float32)
    pitch = 200 * 2 ** (2 * np.floor(times * 8) / 8 % 4)
    return (0.4 * np.sin(2 * np.pi * pitch * times) + 0.05 * noise).astype(np.float32)
