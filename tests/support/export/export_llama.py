"""Makes what models/export_llama.py names, by ExecuTorch's own exporter of language models, with random weights."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from .lowering import quiet

PROMPT = [5, 17, 3, 88, 41, 200, 7]
TOKENS = 24  # of the answer
CONTEXT = 128
METADATA = {"get_bos_id": 1, "get_eos_ids": [2, 3]}


def write(params: dict[str, Any], folder: Path) -> None:
    """Write the program, and the tokens that the exporter's own runner, or its module in PyTorch, continues with."""
    from executorch.examples.models.llama import export_llama_lib

    with quiet(), tempfile.TemporaryDirectory() as weights:
        config = _config(params, Path(weights))
        config.export.output_dir, config.export.output_name = str(folder), "program"
        if params["backend"] == "vulkan":
            module = export_llama_lib._prepare_for_llama_export(config).model.eval()
        export_llama_lib.export_llama(config)
        if params["backend"] == "vulkan":  # the wheel cannot run it
            tokens = _continue(lambda ids, at: module(torch.tensor([ids]), {"input_pos": torch.tensor([at])}), True)
        else:
            tokens = _continue(_runner(folder / "program.pte"), params["dynamic"])
    (folder / "tokens.json").write_text(json.dumps(tokens))


def _config(params: dict[str, Any], folder: Path) -> Any:
    """Return the options of an export, after writing the checkpoint that it reads."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.extension.llm.export.config.llm_config import DtypeOverride, LlmConfig

    sizes = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 128, "norm_eps": 1e-5}
    sizes["vocab_size"] = params["vocabulary"]
    (folder / "params.json").write_text(json.dumps(sizes))
    generator = torch.Generator().manual_seed(0)
    weights = dict(construct_transformer(ModelArgs(**sizes)).named_parameters())
    with torch.no_grad():
        for weight in weights.values():
            weight.normal_(0, 0.2, generator=generator) if weight.dim() > 1 else weight.uniform_(
                0.5, 1.5, generator=generator
            )
    torch.save(weights, folder / "weights.pth")
    config = LlmConfig()
    config.base.params, config.base.checkpoint = str(folder / "params.json"), str(folder / "weights.pth")
    config.base.metadata = json.dumps(METADATA)
    config.model.use_kv_cache = True
    config.model.use_sdpa_with_kv_cache = params["custom_sdpa"]
    config.model.dtype_override = DtypeOverride(params["dtype"])
    config.model.enable_dynamic_shape = params["dynamic"]
    config.export.max_seq_length = config.export.max_context_length = CONTEXT
    if params["backend"] == "xnnpack":
        config.backend.xnnpack.enabled = config.backend.xnnpack.extended_ops = True
    else:
        config.backend.vulkan.enabled = params["backend"] == "vulkan"
    if params["quantize"]:
        config.quantization.qmode, config.quantization.group_size = params["quantize"], 32
        config.quantization.embedding_quantize = params["embedding"]
        config.quantization.use_hqq = False
    return config


def _runner(program: Path) -> Any:
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
    from executorch.extension.pybindings import portable_lib
    from executorch.kernels import quantized  # noqa: F401

    module = portable_lib._load_for_executorch(str(program))
    return lambda ids, at: module.forward((torch.tensor([ids]), torch.tensor([at])))[0]


def _continue(call: Any, dynamic: bool) -> dict[str, Any]:
    """Return the prompt, what a greedy search continues it with, and the smallest gap of the two best logits."""
    steps = [PROMPT] if dynamic else [[token] for token in PROMPT]
    tokens: list[int] = []
    gaps: list[float] = []
    position = 0
    with torch.no_grad():
        while len(tokens) < TOKENS:
            ids = steps.pop(0) if steps else tokens[-1:]
            logits = call(ids, position)
            position += len(ids)
            if not steps:
                best = torch.topk(logits.reshape(-1), 2)
                tokens.append(int(best.indices[0]))
                gaps.append(float(best.values[0] - best.values[1]))
    return {"prompt": PROMPT, "tokens": tokens, "gap": min(gaps)}
