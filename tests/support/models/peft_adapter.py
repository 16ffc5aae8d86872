"""LoRA adapters as PEFT saves them, and the same adapter merged into a checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models.tiny_checkpoint import write_safetensors
from webpte.checkpoints.safetensors_file import read_safetensors

Array = np.ndarray
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "org/tiny",
    "r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.05,
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "target_modules": ["q_proj", "v_proj"],
}


def write_adapter(
    folder: Path, shapes: dict[str, tuple[int, int]], seed: int, ranks: dict[str, int] | None = None, **config: Any
) -> None:
    """Write an adapter of these modules, (N, K) each. `ranks` are those of modules whose rank is not `r`."""
    folder.mkdir()
    random, arrays = np.random.default_rng(seed), {}
    fields = {**CONFIG, **config}
    for module, (rows, columns) in shapes.items():
        rank = (ranks or {}).get(module, fields["r"])
        for part, shape in (("A", (rank, columns)), ("B", (rows, rank))):
            arrays[f"base_model.model.{module}.lora_{part}.weight"] = random.normal(0, 0.3, shape).astype("<f4")
    write_safetensors(folder / "adapter_model.safetensors", arrays)
    (folder / "adapter_config.json").write_text(json.dumps(fields))


def write_merged(checkpoint: Path, adapter: Path, scales: dict[str, float], folder: Path) -> None:
    """Write the checkpoint with W + s B A in place of the weights of an adapter's modules."""
    shutil.copytree(checkpoint, folder)
    arrays = {name: tensor.read() for name, tensor in read_safetensors(checkpoint / "model.safetensors").items()}
    matrices = {name: tensor.read() for name, tensor in read_safetensors(adapter / "adapter_model.safetensors").items()}
    for module, scale in scales.items():
        a, b = (matrices[f"base_model.model.{module}.lora_{part}.weight"].astype(np.float64) for part in "AB")
        arrays[f"{module}.weight"] = (arrays[f"{module}.weight"] + scale * (b @ a)).astype("<f4")
    write_safetensors(folder / "model.safetensors", arrays)


def with_adapter(model: Any, folder: Path, targets: str | list[str] = "all-linear", **config: Any) -> Any:
    """Return PEFT's model with an adapter of random matrices, and save the adapter in a folder."""
    import torch
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(target_modules=targets, **{"r": 4, "lora_alpha": 8, **config})).eval()
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, matrix in adapted.named_parameters():
            if "lora_" in name:
                matrix.copy_(torch.randn(matrix.shape, generator=random) * 0.2)
    adapted.save_pretrained(folder)
    return adapted
