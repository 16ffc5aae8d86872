"""Builders of programs that rotate a part of each head, with the tokens after the heads, as in Hugging Face models."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model, forward
from .transformers import export_model

HALVES = "et_vk.apply_rotary_emb_hf.default"


def turned(x, cos, sin):
    """The first elements of each head by halves, as many as the tables are wide."""
    width = cos.shape[-1]
    turning, rest = x[..., :width], x[..., width:]
    low, high = turning[..., : width // 2], turning[..., width // 2 :]
    return torch.cat([turning * cos + torch.cat((-high, low), dim=-1) * sin, rest], dim=-1)


def partial_rotary(width: int = 16, lengths: tuple[int, ...] = (11, 7, 4, 2)) -> Model:
    """A quarter, 0.4 and all of each head, by one table or by one for each of the batch."""

    class Rotary(nn.Module):
        def forward(self, q, k, quarter, some, whole):
            outputs: list[torch.Tensor] = []
            for queries, keys, tables in ((q, k, quarter), (q * 2, k * 3, some), (k, k * 2, whole)):
                cos, sin = (tables[i].unsqueeze(1) for i in (0, 1))
                outputs += turned(queries, cos, sin), turned(keys, cos, sin)
            return tuple(outputs)

    def step(n: int) -> Inputs:
        tables = (torch.randn(2, b, n, r) for b, r in ((1, width // 4), (2, int(width * 0.4)), (1, width)))
        return torch.randn(2, 3, n, width), torch.randn(2, 1, n, width), *tables

    n = Dim("n", max=11)
    shapes = ({2: n},) * 5
    return forward(Rotary(), step(5), [[step(m) for m in lengths]], dynamic_shapes=shapes, expect=(HALVES,))


def gpt_neox(factor: float, hidden: int, transformers: str) -> Model:
    """The whole model; of the 20 elements of a head, 0.45 turn by a table of 10."""
    import transformers as hf

    config = hf.GPTNeoXConfig(
        vocab_size=97,
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=80,
        max_position_embeddings=64,
        use_cache=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": factor},
    )

    def step(tokens: int) -> Inputs:
        return (torch.randint(3, 97, (2, tokens)),)

    dims = ({1: Dim("tokens", min=2, max=31)},)
    steps = [step(n) for n in (31, 17, 5, 2)]
    return export_model(hf.GPTNeoXForCausalLM, config, ("input_ids",), ("logits",), steps, step(11), dims)
