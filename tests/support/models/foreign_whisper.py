"""A Whisper with the methods of optimum-executorch: `encoder`, and `text_decoder` of one token with its own cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import gelu


class Encoder(torch.nn.Module):
    """Hidden states of a spectrogram."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model.model.encoder

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(mel).last_hidden_state
        return result


class Decoder(torch.nn.Module):
    """Logits after a token, (1, 1, V)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config, self.inner, self.head = model.config, model.model.decoder, model.proj_out
        self.heads, self.positions = config.decoder_attention_heads, config.max_target_positions
        self.width = config.d_model // self.heads
        for name in self._caches(config.decoder_layers):
            empty = torch.zeros(1, self.heads, self.positions, self.width)
            self.register_buffer(name, empty, persistent=False)

    def _caches(self, layers: int) -> list[str]:
        return [f"{part}_{number}" for number in range(layers) for part in ("keys", "values")]

    def forward(self, tokens: torch.Tensor, hidden: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.inner.embed_tokens(tokens) + self.inner.embed_positions.weight[position][None]
        mask = torch.where(torch.arange(self.positions)[None] <= position[:, None], 0.0, float("-inf"))
        for number, layer in enumerate(self.inner.layers):
            normed, part = layer.self_attn_layer_norm(x), layer.self_attn
            keys, values = getattr(self, f"keys_{number}"), getattr(self, f"values_{number}")
            keys.index_copy_(2, position, self._split(part.k_proj(normed)))
            values.index_copy_(2, position, self._split(part.v_proj(normed)))
            x = x + part.out_proj(self._mixed(part.q_proj(normed), keys, values, mask))
            normed, part = layer.encoder_attn_layer_norm(x), layer.encoder_attn
            heard = self._split(part.k_proj(hidden)), self._split(part.v_proj(hidden))
            x = x + part.out_proj(self._mixed(part.q_proj(normed), *heard, torch.zeros(())))
            x = x + layer.fc2(gelu(layer.fc1(layer.final_layer_norm(x))))
        logits: torch.Tensor = self.head(self.inner.layer_norm(x))
        return logits

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, -1, self.heads, self.width).transpose(1, 2)

    def _mixed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self._split(q) * self.width**-0.5 @ k.transpose(2, 3) + mask
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(1, 1, -1)


def write_foreign(checkpoint: Path, path: Path) -> None:
    """Export a checkpoint for XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from transformers import WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(checkpoint, attn_implementation="eager").eval()
    mel = torch.zeros(1, model.config.num_mel_bins, 2 * model.config.max_source_positions)
    with torch.no_grad():
        token, hidden = torch.zeros(1, 1, dtype=torch.long), Encoder(model)(mel)
        programs = {
            "encoder": torch.export.export(Encoder(model), (mel,)),
            "text_decoder": torch.export.export(Decoder(model), (token, hidden, token[0])),
        }
        lowered = to_edge_transform_and_lower(
            programs,
            partitioner=[XnnpackPartitioner()],
            constant_methods={"get_max_seq_len": model.config.max_target_positions},
        )
    path.write_bytes(lowered.to_executorch().buffer)
