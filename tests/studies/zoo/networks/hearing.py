"""Networks that read or write sound: recognition, and a vocoder.

The structure and the ops are those of the published networks; widths, depths and lengths are small.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn, randn
from torch.export import Dim

from tests.support.models.transformers import Outputs, lively

from ..building import Case, case, program


@program
def whisper() -> Case:
    """Whisper: an encoder of a spectrogram and a decoder of any number of tokens."""
    layers = {
        f"{part}_{name}": value
        for part, count in (("encoder", 1), ("decoder", 2))
        for name, value in (("layers", count), ("attention_heads", 3), ("ffn_dim", 96))
    }
    config = hf.WhisperConfig(
        **layers,
        d_model=54,
        num_mel_bins=20,
        max_source_positions=37,
        max_target_positions=23,
        vocab_size=131,
        use_cache=False,
        pad_token_id=1,
        decoder_start_token_id=2,
        eos_token_id=2,
        bos_token_id=2,
    )
    config._attn_implementation = "eager"
    model = lively(hf.WhisperForConditionalGeneration(config))
    steps = [(randn(1, 20, 74), torch.randint(3, 131, (1, t))) for t in (23, 13, 23, 7, 2)]
    names = ("logits", "encoder_last_hidden_state")
    dims = ({}, {1: Dim("t", min=2, max=23)})  # type: ignore[var-annotated]  # no dim of the first
    return case(Outputs(model, ("input_features", "decoder_input_ids"), names), steps, *dims)


@program
def hifigan() -> Case:
    """HiFi-GAN: a vocoder, from a spectrogram of any length to a wave."""
    rates: dict[str, Any] = {"upsample_rates": [4, 3, 2], "upsample_kernel_sizes": [8, 7, 4]}
    residual: dict[str, Any] = {"resblock_kernel_sizes": [3, 7], "resblock_dilation_sizes": [[1, 3, 5]] * 2}
    config = hf.SpeechT5HifiGanConfig(**rates, **residual, model_in_dim=19, upsample_initial_channel=40)
    steps = [(randn(1, t, 19),) for t in (31, 17, 31, 5, 2)]
    return case(lively(hf.SpeechT5HifiGan(config)), steps, {1: Dim("t", min=2, max=31)})


@program
def wav2vec2() -> Case:
    """wav2vec 2.0: strided convolutions over the wave, a positional convolution, a transformer, letters."""
    convolutions: dict[str, Any] = {
        "conv_dim": (14, 14, 22, 22),
        "conv_kernel": (10, 3, 3, 2),
        "conv_stride": (5, 2, 2, 2),
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 3,
        "num_feat_extract_layers": 4,
    }
    layers: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    config = hf.Wav2Vec2Config(**convolutions, **layers, hidden_size=54, vocab_size=31)
    config._attn_implementation = "eager"
    model: nn.Module = lively(hf.Wav2Vec2ForCTC(config))
    steps = [(randn(n, 1511),) for n in (3, 2, 3, 1)]
    return case(Outputs(model, ("input_values",), ("logits",)), steps, {0: Dim("n", max=3)})
