"""Language models with a static cache, as `transformers` exports them itself, one token at a time."""

from typing import Any

import torch
import transformers as hf
from transformers.integrations.executorch import convert_and_export_with_cache

from tests.support.models.transformers import lively

from ..building import Case, case, module, program

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
}


def decode(config: Any, make: Any, *kept_out: str) -> Case:
    """In a cache of 32; `kept_out` are ops that stay out of delegates."""
    from executorch.exir.dialects._ops import ops

    hf.logging.set_verbosity_error()
    model = lively(make(config))
    model.generation_config = hf.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=32,
        cache_config={"batch_size": 1, "max_cache_len": 32, "device": "cpu"},
    )
    steps = [(torch.tensor([[5 + k]]), torch.tensor([k])) for k in range(6)]
    traced = convert_and_export_with_cache(
        model, example_input_ids=steps[0][0], example_cache_position=steps[0][1]
    ).module()

    def forward(self, ids, position):
        return self.model(input_ids=ids, cache_position=position)

    listed = [getattr(ops.edge.aten, name).Tensor for name in kept_out]
    return case(module(forward, model=traced), steps, as_is=True, keep_out={"operator_blocklist": listed})


@program
def static_llama() -> Case:
    """All that the partitioner takes in delegates."""
    return decode(hf.LlamaConfig(**SIZES), hf.LlamaForCausalLM)


@program
def static_llama_blocked() -> Case:
    """Additions kept out of the delegates, among them those that count tokens."""
    return decode(hf.LlamaConfig(**SIZES), hf.LlamaForCausalLM, "add")


@program
def static_qwen3_blocked() -> Case:
    """Additions kept out of the delegates, among them those that count tokens."""
    return decode(hf.Qwen3Config(**SIZES), hf.Qwen3ForCausalLM, "add")
