"""A tiny Llama that calls a tool as soon as it is shown one: random weights, but for a few rows of its head.

Its tokens are bytes and some words, so it reads any text; its context is that of a real chat. It likes to say `"`,
which ends strings of JSON, and ends its answer after a call.
"""

from __future__ import annotations

import torch

from ..export.lowering import Model, forward
from .llama import clear_caches, metadata, with_fused_attention

MAX_TOKENS = 255


def caller(vocabulary: int, context: int, shown: int, call: int, called: int, quote: int, end: int) -> Model:
    """Return a Llama that says token `call` after `shown` and `end` after `called`; `quote` is likely everywhere."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    torch.manual_seed(7)
    module = construct_transformer(
        ModelArgs(
            dim=64,
            n_layers=2,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=128,
            vocab_size=vocabulary,
            max_seq_len=MAX_TOKENS + 1,
            max_context_len=context,
            use_kv_cache=True,
            use_sdpa_with_kv_cache_op=True,
            enable_dynamic_shape=True,
        )
    ).eval()
    with torch.no_grad():
        table, head = module.tok_embeddings.weight, module.output.weight
        for before, after in ((shown, call), (called, end)):
            head[after] = torch.nn.functional.normalize(table[before], dim=0)
        common = torch.nn.functional.normalize(torch.randn(64), dim=0)  # of all tokens equal
        table += 3 * common
        head[quote] = common
    module = with_fused_attention(module)
    tokens = [torch.randint(0, vocabulary, (1, length)) for length in (3, 1)]
    steps = [(tokens[0], {"input_pos": torch.tensor([0])}), (tokens[1], {"input_pos": torch.tensor([3])})]
    constants = metadata(True, dynamic=True) | {
        "get_max_seq_len": MAX_TOKENS + 1,
        "get_max_context_len": context,
        "get_vocab_size": vocabulary,
        "get_bos_id": end,
        "get_eos_ids": [end],
    }
    return forward(
        module,
        steps[0],
        [steps],
        dynamic_shapes=({1: torch.export.Dim("token_dim", max=MAX_TOKENS)}, {"input_pos": {0: 1}}),
        reset=lambda: clear_caches(module),
        constant_methods=constants,
        llama=True,
    )
