"""Makes what static_caches.py names: the program, by torch.export and ExecuTorch alone, and the tokens wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from ..models.transformers import lively
from .lowering import quiet

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "max_position_embeddings": 64,
}
PROMPT = [5, 17, 3, 88, 41]
LENGTH = 48  # of the cache


def write(name: str, folder: Path) -> None:
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind = {"llama": "Llama", "qwen3": "Qwen3"}[name]
        config = getattr(transformers, f"{kind}Config")(**SIZES)
        model = lively(getattr(transformers, f"{kind}ForCausalLM")(config)).eval()
        with torch.no_grad():
            tokens = model.generate(
                torch.tensor([PROMPT]), max_new_tokens=34, do_sample=False, eos_token_id=None, pad_token_id=0
            )
        (folder / "tokens.json").write_text(json.dumps({"prompt": PROMPT, "generated": tokens[0].tolist()}))
        program = _lowered(model)
    with open(folder / "program.pte", "wb") as file:
        program.write_to_file(file)


def _lowered(model: Any) -> Any:
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from transformers.integrations.executorch import convert_and_export_with_cache

    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=LENGTH,
        cache_config={"batch_size": 1, "max_cache_len": LENGTH, "device": "cpu"},
    )
    traced = convert_and_export_with_cache(
        model, example_input_ids=torch.tensor([[1]]), example_cache_position=torch.tensor([0])
    )
    edge = to_edge_transform_and_lower(traced, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return edge.to_executorch()
