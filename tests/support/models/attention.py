"""Builders around attention: rotary embedding, and fused attention whose caches are graph inputs."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model, forward

ROTARY = "et_vk.apply_rotary_emb.default"
SDPA = "sdpa_with_kv_cache.default"


def rotary_inputs(seq: int, heads: int, kv_heads: int, head_dim: int) -> Inputs:
    from executorch.examples.models.llama.rope import precompute_freqs_cis

    cos, sin = precompute_freqs_cis(head_dim, 2 * seq)
    # The second half of the table, so that no row is the identity rotation of position 0.
    return torch.randn(1, seq, heads, head_dim), torch.randn(1, seq, kv_heads, head_dim), cos[seq:], sin[seq:]


def rotary_module() -> nn.Module:
    """ExecuTorch's own module: only its exact graph is fused to et_vk.apply_rotary_emb."""
    from executorch.examples.models.llama.rope import RotaryEmbedding

    return RotaryEmbedding()


def rotary(seq: int, heads: int, kv_heads: int, head_dim: int) -> Model:
    inputs = rotary_inputs(seq, heads, kv_heads, head_dim)
    return forward(rotary_module(), inputs, [[inputs]], expect=(ROTARY,))


def rotary_dynamic(
    heads: int = 4, kv_heads: int = 2, head_dim: int = 16, bound: int = 31, lengths: tuple[int, ...] = (13, 1, 7, 31, 1)
) -> Model:
    seq = Dim("seq", max=bound)
    steps = [rotary_inputs(s, heads, kv_heads, head_dim) for s in lengths]
    return forward(
        rotary_module(),
        rotary_inputs(5, heads, kv_heads, head_dim),
        [steps],
        dynamic_shapes=({1: seq}, {1: seq}, {0: seq}, {0: seq}),
        expect=(ROTARY,),
    )


def sdpa_cache_inputs(
    seq: int = 3, heads: int = 4, kv_heads: int = 2, head_dim: int = 16, context: int = 16, live_position: bool = False
) -> Model:
    """Attention over caches that the caller passes in; the plan copies the new ones back into the inputs.

    The position is 2, written into the program, or with `live_position` an input and so a SymInt.
    """
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers the llama:: ops

    class Attention(nn.Module):
        def forward(self, q, k, v, k_cache, v_cache, position=None):
            start = 2 if position is None else position[0].item()
            torch.ops.llama.update_cache(k, k_cache, start)
            torch.ops.llama.update_cache(v, v_cache, start)
            return torch.ops.llama.custom_sdpa(q, k_cache, v_cache, start, None, 0.0, True)

    def step(position: int) -> Inputs:
        q = torch.randn(1, seq, heads, head_dim)
        k, v = (torch.randn(1, seq, kv_heads, head_dim) for _ in "kv")
        caches = [torch.zeros(1, context, kv_heads, head_dim) for _ in "kv"]
        for cache in caches:
            cache[:, :position] = torch.randn(1, position, kv_heads, head_dim)
        return (q, k, v, *caches, *([torch.tensor([position])] if live_position else []))

    positions = (2, 5, 0, 13) if live_position else (2, 2)
    return forward(Attention(), step(2), [[step(p) for p in positions]], mutated=(3, 4), expect=(SDPA,))
