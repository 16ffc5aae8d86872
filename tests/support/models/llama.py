"""A tiny Llama in every variant ExecuTorch exports for this delegate: 2 layers, 64 wide, 4 query and 2 key heads."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model, forward

VOCAB = 128
CONTEXT = 64
MAX_TOKENS = 31  # ExecuTorch exports max_seq_len - 1
# Tokens per step, from an empty cache: prefill, then decode.
RUNS = ((3, 1, 1, 1), (7, 1, 1))
STATIC_RUNS = ((1, 1, 1, 1), (1, 1))
NO_CACHE_LENGTHS = (13, 5)


def llama(
    quantize: str = "",
    embedding: str = "",
    group_size: int = 32,
    force_fp16: bool = False,
    hf_rope: bool = False,
    static: bool = False,
    kv_cache: bool = True,
    full_logits: bool = False,
) -> Model:
    """`quantize` is "4w" or "8da4w", `embedding` bits and group ("4,32"); `static` is one token at a time."""
    module = transformer(kv_cache, hf_rope, dynamic=not static, full_logits=full_logits)
    if kv_cache:
        module = with_fused_attention(module)
    module = quantized(module, quantize, embedding, group_size)
    dynamic_tokens = {1: Dim("token_dim", max=MAX_TOKENS)}
    shapes: tuple
    if kv_cache:
        sequences = [run(steps) for steps in (STATIC_RUNS if static else RUNS)]
        shapes = (dynamic_tokens, {"input_pos": {0: 1}})
    else:
        sequences = [[(tokens(n),) for n in ((13, 13) if static else NO_CACHE_LENGTHS)]]
        shapes = (dynamic_tokens,)
    return forward(
        module,
        sequences[0][0],
        sequences,
        dynamic_shapes=None if static else shapes,
        reset=lambda: clear_caches(module),
        options={"force_fp16": True} if force_fp16 else {},
        constant_methods=metadata(kv_cache, dynamic=not static),
        llama=kv_cache,
        expect=expected_ops(quantize, embedding, hf_rope) if kv_cache else (),
    )


def transformer(kv_cache: bool, hf_rope: bool, dynamic: bool, full_logits: bool) -> nn.Module:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    module = construct_transformer(
        ModelArgs(
            dim=64,
            n_layers=2,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=128,
            vocab_size=VOCAB,
            max_seq_len=MAX_TOKENS + 1,
            max_context_len=CONTEXT,
            use_kv_cache=kv_cache,
            use_sdpa_with_kv_cache_op=kv_cache,
            use_hf_rope=hf_rope,
            enable_dynamic_shape=dynamic,
            generate_full_logits=full_logits,
        )
    ).eval()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "norm" in name:  # all ones when made, which would hide a norm that forgets its weight
                weight.uniform_(0.5, 1.5)
    return module


def with_fused_attention(module: nn.Module) -> nn.Module:
    from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
        replace_kv_cache_with_custom_kv_cache,
    )
    from executorch.examples.models.llama.source_transformation.sdpa import replace_sdpa_with_custom_op

    return replace_kv_cache_with_custom_kv_cache(replace_sdpa_with_custom_op(module))  # in this order


def quantized(module: nn.Module, quantize: str, embedding: str, group_size: int) -> nn.Module:
    from executorch.examples.models.llama.source_transformation import quantize as q

    if embedding:
        module = q.get_quant_embedding_transform(embedding, False)(module)
    if quantize:
        module = q.quantize(module, quantize, group_size=group_size, quantize_with_hqq=False)
    return module


def expected_ops(quantize: str, embedding: str, hf_rope: bool) -> tuple[str, ...]:
    linear = {"": "aten.linear", "4w": "et_vk.linear_q4gsw", "8da4w": "et_vk.linear_dq8ca_q4gsw"}[quantize]
    rope = "et_vk.apply_rotary_emb_hf" if hf_rope else "et_vk.apply_rotary_emb"
    table = "et_vk.embedding_q4gsw" if embedding else "aten.embedding"
    return tuple(f"{op}.default" for op in ("sdpa_with_kv_cache", "et_vk.rms_norm", linear, rope, table))


def tokens(n: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (1, n))


def run(lengths: tuple[int, ...]) -> list[Inputs]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [(tokens(n), {"input_pos": torch.tensor([at])}) for n, at in zip(lengths, starts, strict=True)]


def clear_caches(module: nn.Module) -> None:
    for name, buffer in module.named_buffers():
        if name.endswith(("k_cache", "v_cache")):
            buffer.zero_()


def metadata(kv_cache: bool, dynamic: bool) -> dict[str, object]:
    """What export_llama writes, which LLM runners read: methods that only return constants."""
    return {
        "get_max_seq_len": MAX_TOKENS + 1,
        "get_max_context_len": CONTEXT,
        "get_n_layers": 2,
        "get_vocab_size": VOCAB,
        "use_kv_cache": kv_cache,
        "use_sdpa_with_kv_cache": kv_cache,
        "enable_dynamic_shape": dynamic,
        "get_bos_id": 1,
        "get_eos_ids": [2, 3],
    }
