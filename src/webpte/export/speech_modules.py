"""Whisper's two halves as torch modules that lower whole: weights of transformers' model, attention of ExecuTorch.

`et_vk.sdpa` is the fused attention of ExecuTorch's Vulkan backend; the decoder's own attention is written as
`update_cache` and `custom_sdpa`, which that backend's pattern makes one op with a cache of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def encode_module(model: Any) -> torch.nn.Module:
    """A spectrogram (1, bands, 2 S) to hidden states (1, S, C), and keys and values (1, H, S, D) of every layer."""
    import torch

    class Encode(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.model.encoder
            self.cross = torch.nn.ModuleList([layer.encoder_attn for layer in model.model.decoder.layers])

        def forward(self, mel: Any) -> Any:
            gelu = torch.nn.functional.gelu
            hidden = gelu(self.encoder.conv2(gelu(self.encoder.conv1(mel))))  # (1, C, S)
            hidden = hidden.transpose(1, 2) + self.encoder.embed_positions.weight  # (1, S, C)
            for layer in self.encoder.layers:
                attention, normed = layer.self_attn, layer.self_attn_layer_norm(hidden)
                projections = (attention.q_proj, attention.k_proj, attention.v_proj)
                query, key, value = (_heads(project(normed), attention) for project in projections)
                hidden = hidden + _attend(attention, query, key, value)
                hidden = hidden + _feed_forward(layer, hidden)
            hidden = self.encoder.layer_norm(hidden)
            keys = [_heads(attention.k_proj(hidden), attention).contiguous() for attention in self.cross]
            values = [_heads(attention.v_proj(hidden), attention).contiguous() for attention in self.cross]
            return hidden, keys, values

    return Encode().eval()


def decode_module(model: Any) -> torch.nn.Module:
    """Tokens (1, T) behind those before `position` (1,), with what `Encode` gave: logits (1, V) of the last."""
    import torch

    decoder = model.model.decoder
    positions = model.config.max_target_positions
    heads, vocabulary = model.config.decoder_attention_heads, model.config.vocab_size
    cache = (1, positions, heads, model.config.d_model // heads)

    class Decode(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.decoder = decoder
            self.head = model.proj_out
            for number in range(len(decoder.layers)):
                self.register_buffer(f"keys_{number}", torch.zeros(cache))
                self.register_buffer(f"values_{number}", torch.zeros(cache))

        def forward(self, tokens: Any, position: Any, keys: Any, values: Any) -> Any:
            start = position[0].item()
            torch._check_is_size(start)
            torch._check(start < positions)
            places = decoder.embed_positions.weight.narrow(0, start, tokens.shape[1])  # (T, C)
            hidden = decoder.embed_tokens(tokens) * decoder.embed_scale + places  # (1, T, C)
            for number, layer in enumerate(self.decoder.layers):
                caches = getattr(self, f"keys_{number}"), getattr(self, f"values_{number}")
                hidden = hidden + _attend_to_past(layer.self_attn, layer.self_attn_layer_norm(hidden), caches, start)
                attention, normed = layer.encoder_attn, layer.encoder_attn_layer_norm(hidden)
                query = _heads(attention.q_proj(normed), attention)
                hidden = hidden + _attend(attention, query, keys[number], values[number])
                hidden = hidden + _feed_forward(layer, hidden)
            logits = self.head(self.decoder.layer_norm(hidden)[:, -1])
            return (
                logits if logits.shape[-1] == vocabulary else logits[:, :vocabulary]
            )  # a head may have been filled up

    return Decode().eval()


def _heads(hidden: Any, attention: Any) -> Any:
    """(1, T, C) to (1, H, T, D)."""
    return hidden.view(1, -1, attention.num_heads, attention.head_dim).transpose(1, 2)


def _attend(attention: Any, query: Any, key: Any, value: Any) -> Any:
    import torch

    found = torch.ops.et_vk.sdpa(query, key, value, None, attention.scaling)  # (1, H, T, D)
    return attention.out_proj(found.transpose(1, 2).reshape(1, -1, attention.embed_dim))  # (1, T, C)


def _attend_to_past(attention: Any, hidden: Any, caches: tuple[Any, Any], start: Any) -> Any:
    import torch

    shape = (1, hidden.shape[1], attention.num_heads, attention.head_dim)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    query, key, value = (project(hidden).view(shape) for project in projections)  # (1, T, H, D)
    torch.ops.llama.update_cache(key, caches[0], start)
    torch.ops.llama.update_cache(value, caches[1], start)
    found = torch.ops.llama.custom_sdpa(query, *caches, start, None, 0, True, attention.scaling)  # (1, T, H, D)
    return attention.out_proj(found.view(hidden.shape))


def _feed_forward(layer: Any, hidden: Any) -> Any:
    return layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden))))
