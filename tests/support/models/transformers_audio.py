"""Speech architectures of `transformers`, tiny and with seeded random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch.export import Dim

from ..export.lowering import Inputs, Model
from .transformers import export_model


def build(name: str, transformers: str) -> Model:
    """The model called `name`; `transformers` is the version it comes from, which makes it part of the cache key."""
    return globals()[name]()


def wav2vec2() -> Model:
    """Sound waves (2, samples <= 1991) in whole frames: the exporter cannot reason about the roundings in between."""
    convolutions: dict[str, Any] = {
        "conv_dim": (16, 16, 24),
        "conv_kernel": (10, 3, 2),
        "conv_stride": (5, 2, 2),
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
    }
    layers: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80}
    config = hf.Wav2Vec2Config(**convolutions, **layers, hidden_size=48, vocab_size=31)
    steps: list[Inputs] = [(torch.randn(2, n),) for n in (1991, 1111, 411)]
    samples = 20 * Dim("frames", min=11, max=100) - 9
    return export_model(hf.Wav2Vec2ForCTC, config, ("input_values",), ("logits",), steps, steps[1], ({1: samples},))


def whisper_encoder() -> Model:
    """Spectrograms (B <= 3, 16 bands, 60 frames)."""
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    layers: dict[str, Any] = {"encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 80}
    config = hf.WhisperConfig(**layers, d_model=48, num_mel_bins=16, max_source_positions=30)
    steps: list[Inputs] = [(torch.randn(n, 16, 60),) for n in (3, 2, 1)]
    dims = ({0: Dim("batch", max=3)},)
    return export_model(WhisperEncoder, config, ("input_features",), ("last_hidden_state",), steps, steps[1], dims)
