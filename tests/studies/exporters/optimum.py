"""Export tiny language models with optimum-executorch: `python -m tests.studies exporters.optimum FOLDER [VOCABULARY]`.

optimum-executorch 1.1 requires transformers 5.0, so this runs in an environment of its own: that of the tests, with
`pip install --no-deps --target FOLDER` of optimum-executorch 1.1.0, optimum 2.0.0, transformers 5.0.0rc1, tokenizers
0.22.2, huggingface_hub 1.3.0 and accelerate on its path. Each program has a `.json` file beside it: a prompt, and the
tokens that ExecuTorch's runtime continues it with, called as optimum's own `generate` calls it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

PROMPT = [5, 17, 3, 88, 41, 200, 7]
TOKENS = 33
CONTEXT = 64
KINDS: dict[str, dict[str, Any]] = {
    "optimum_plain": {},
    "optimum_static": {"disable_dynamic_shapes": True},
    "optimum_custom_sdpa": {"use_custom_sdpa": True},
    "optimum_custom_cache": {"use_custom_sdpa": True, "use_custom_kv_cache": True},
    "optimum_8da4w": {"use_custom_sdpa": True, "use_custom_kv_cache": True, "qlinear": "8da4w", "qembedding": "8w"},
}


def write(name: str, folder: Path, vocabulary: int) -> None:
    import torch
    from optimum.exporters.executorch import export_to_executorch
    from optimum.exporters.executorch.tasks.causal_lm import load_causal_lm_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3) if weight.dim() > 1 else weight.uniform_(0.5, 1.5)
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(f"{temporary}/model")
        exportable = load_causal_lm_model(f"{temporary}/model", max_seq_len=CONTEXT, **KINDS[name])
        export_to_executorch(exportable, "text-generation", "xnnpack", temporary)
        data = Path(temporary, "model.pte").read_bytes()
    (folder / f"{name}.pte").write_bytes(data)
    (folder / f"{name}.json").write_text(json.dumps({"prompt": PROMPT, "tokens": _continue(data)}) + "\n")


def _continue(program: bytes) -> list[int]:
    import torch
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
    from executorch.extension.pybindings import portable_lib
    from executorch.kernels import quantized  # noqa: F401

    module = portable_lib._load_for_executorch_from_buffer(program)
    dynamic = module.method_meta("forward").input_tensor_meta(1).sizes()[0] > 1
    steps = [PROMPT] if dynamic else [[token] for token in PROMPT]
    tokens: list[int] = []
    position = 0
    while len(tokens) < TOKENS:
        ids = steps.pop(0) if steps else tokens[-1:]
        logits = module.forward((torch.tensor([ids]), torch.arange(position, position + len(ids))))[0]
        position += len(ids)
        if not steps:
            tokens.append(int(logits[0, -1].argmax()))
    return tokens


if __name__ == "__main__":
    for kind in KINDS:
        write(kind, Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 256)
        print(kind, flush=True)
