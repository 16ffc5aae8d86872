"""SmolLM2's own structure, widths and vocabulary with few layers and random weights, quantized like the real one."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model, forward
from .llama import clear_caches, expected_ops, quantized, with_fused_attention

VOCAB = 49152
CONTEXT, MAX_TOKENS = 1024, 255
RUNS = ((17, 1, 1, 1), (129, 1), (255, 255, 1))  # tokens per step, from an empty cache


def smollm(layers: int = 1) -> Model:
    """576 wide, 9 query and 3 key heads, 1536 in the feed-forward, 4-bit weights in groups of 32."""
    module = quantized(with_fused_attention(_transformer(layers)), "4w", "4,32", 32)
    sequences = [_run(lengths) for lengths in RUNS]
    return forward(
        module,
        sequences[0][0],
        sequences,
        dynamic_shapes=({1: Dim("token_dim", max=MAX_TOKENS)}, {"input_pos": {0: 1}}),
        reset=lambda: clear_caches(module),
        constant_methods={
            "get_max_seq_len": MAX_TOKENS + 1,
            "get_max_context_len": CONTEXT,
            "get_n_layers": layers,
            "get_vocab_size": VOCAB,
            "use_kv_cache": True,
            "use_sdpa_with_kv_cache": True,
            "enable_dynamic_shape": True,
            "get_bos_id": 1,
            "get_eos_ids": [2],
        },
        llama=True,
        expect=expected_ops("4w", "4,32", hf_rope=False),
    )


def _transformer(layers: int) -> nn.Module:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    arguments = ModelArgs(
        dim=576,
        n_layers=layers,
        n_heads=9,
        n_kv_heads=3,
        hidden_dim=1536,
        vocab_size=VOCAB,
        norm_eps=1e-5,
        rope_freq_base=100000.0,
        max_seq_len=MAX_TOKENS + 1,
        max_context_len=CONTEXT,
        use_kv_cache=True,
        use_sdpa_with_kv_cache_op=True,
        enable_dynamic_shape=True,
    )
    module = construct_transformer(arguments).eval()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "norm" in name:  # all ones when made, which would hide a norm that forgets its weight
                weight.uniform_(0.5, 1.5)
        module.output.weight.mul_(4)  # a few likely tokens; tied to random embeddings it would repeat the last one
    return module


def _run(lengths: tuple[int, ...]) -> list[Inputs]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    pairs = zip(lengths, starts, strict=True)
    return [(torch.randint(0, VOCAB, (1, n)), {"input_pos": torch.tensor([at])}) for n, at in pairs]
