"""Language models with a static cache, as `transformers` exports them itself."""

from typing import Any

import torch
import transformers as hf
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

from tests.support.models_transformers import lively

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


def decode(config: Any, make: Any, **keep_out: Any) -> Case:
    """One token at a time, in a cache of 32."""
    hf.logging.set_verbosity_error()
    model = lively(make(config))
    cache = {"batch_size": 1, "max_cache_len": 32, "device": "cpu"}
    model.generation_config = hf.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=32, cache_config=cache
    )
    exportable = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=32, device="cpu")

    def forward(self, ids, position):
        return self.model(input_ids=ids, cache_position=position)

    steps = [(torch.tensor([[5 + k]]), torch.tensor([k])) for k in range(6)]
    return case(module(forward, model=exportable), steps, keep_out=keep_out)


@program
def static_llama() -> Case:
    return decode(hf.LlamaConfig(**SIZES), hf.LlamaForCausalLM)


@program
def static_qwen3() -> Case:
    return decode(hf.Qwen3Config(**SIZES), hf.Qwen3ForCausalLM)


@program
def static_llama_blocked() -> Case:
    """Additions kept out of the delegate."""
    from executorch.exir.dialects._ops import ops

    return decode(hf.LlamaConfig(**SIZES), hf.LlamaForCausalLM, operator_blocklist=[ops.edge.aten.add.Tensor])
