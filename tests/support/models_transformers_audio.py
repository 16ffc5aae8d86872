"""Speech architectures of `transformers`, tiny and with seeded random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch.export import Dim

from .export_lowering import Model, forward
from .models_transformers import Outputs, lively

TRANSFORMER: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "vocab_size": 31,
}
WAVES: dict[str, Any] = TRANSFORMER | {
    "conv_dim": (16, 16, 24),
    "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def waves(config: Any, make: Any, outputs: tuple[str, ...]) -> Model:
    """Sound waves (B = 2, samples <= 1991), in whole frames: the exporter does not understand roundings in between."""
    config._attn_implementation = "eager"
    module = Outputs(lively(make(config)), ("input_values",), outputs)
    steps = [(torch.randn(2, n),) for n in (1991, 1111, 411)]
    samples = 20 * Dim("frames", min=11, max=100) - 9
    return forward(module, steps[1], [steps], dynamic_shapes=({1: samples},), strict=False)


def waves_fixed(config: Any, make: Any, outputs: tuple[str, ...]) -> Model:
    config._attn_implementation = "eager"
    module = Outputs(lively(make(config)), ("input_values",), outputs)
    steps = [(torch.randn(n, 2000),) for n in (3, 2, 1)]
    return forward(module, steps[1], [steps], dynamic_shapes=({0: Dim("batch", max=3)},), strict=False)


def wav2vec2() -> Model:
    return waves(hf.Wav2Vec2Config(**WAVES), hf.Wav2Vec2ForCTC, ("logits",))


def wav2vec2_fixed() -> Model:
    return waves_fixed(hf.Wav2Vec2Config(**WAVES), hf.Wav2Vec2ForCTC, ("logits",))


def hubert() -> Model:
    return waves(hf.HubertConfig(**WAVES), hf.HubertModel, ("last_hidden_state",))


def hubert_fixed() -> Model:
    return waves_fixed(hf.HubertConfig(**WAVES), hf.HubertModel, ("last_hidden_state",))


def whisper_encoder() -> Model:
    """Mel spectrograms (B <= 3, 16 bands, 60 frames)."""
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = hf.WhisperConfig(
        d_model=48,
        encoder_layers=2,
        encoder_attention_heads=3,
        encoder_ffn_dim=80,
        num_mel_bins=16,
        max_source_positions=30,
    )
    config._attn_implementation = "eager"
    module = Outputs(lively(WhisperEncoder(config)), ("input_features",), ("last_hidden_state",))
    steps = [(torch.randn(n, 16, 60),) for n in (3, 2, 1)]
    return forward(module, steps[1], [steps], dynamic_shapes=({0: Dim("batch", max=3)},), strict=False)


def ast() -> Model:
    """Audio spectrogram transformer: (B <= 3, frames 40, bands 24)."""
    config = hf.ASTConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=80,
        patch_size=8,
        frequency_stride=8,
        time_stride=8,
        max_length=40,
        num_mel_bins=24,
        num_labels=7,
    )
    config._attn_implementation = "eager"
    module = Outputs(lively(hf.ASTForAudioClassification(config)), ("input_values",), ("logits",))
    steps = [(torch.randn(n, 40, 24),) for n in (3, 2, 1)]
    return forward(module, steps[1], [steps], dynamic_shapes=({0: Dim("batch", max=3)},), strict=False)


def encodec() -> Model:
    """A neural codec's encoder and decoder of waves."""
    config = hf.EncodecConfig(
        num_filters=4,
        hidden_size=16,
        upsampling_ratios=[4, 2],
        num_lstm_layers=1,
        codebook_size=16,
        use_causal_conv=False,
    )
    model = lively(hf.EncodecModel(config))
    steps = [(torch.randn(1, 1, 320),) for _ in range(2)]
    return forward(model.encoder, steps[0], [steps], strict=False)


def vits_text() -> Model:
    raise NotImplementedError


def build(name: str, transformers: str) -> Model:
    """The model called `name`; `transformers` is the version it comes from, which makes it part of the cache key."""
    return globals()[name]()
