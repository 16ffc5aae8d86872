"""A tiny checkpoint of every family, as transformers saves it: a file each, named as in webpte.checkpoints.families.

A file gives MODEL_TYPE and VARIANTS, fields of transformers' config by the variant's name. The first is exported and
run; all are compared with transformers eagerly. COMMON is what they are made of besides. MAX_DIVERGENCE of a file is
that of a second quantization, where it is not the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

PREFILL, DECODE = 17, 12  # tokens of the first call, and calls of one token after it
CONTEXT, MAX_TOKENS = 40, 24
VOCABULARY = 96
MAX_DIVERGENCE = 0.04
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-3,  # not the default of a model, and large enough to matter
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Tiny:
    """A config of transformers' to be."""

    family: str
    variant: str
    model_type: str
    fields: dict[str, Any]

    def make(self) -> torch.nn.Module:
        """With random weights, norms and biases away from where they begin."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.for_model(self.model_type, **{**COMMON, **self.fields})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            model: torch.nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        random = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 1:
                    weight.add_(torch.rand(weight.shape, generator=random) - 0.5)
                else:
                    weight.copy_(torch.randn(weight.shape, generator=random) * weight.shape[-1] ** -0.5)
            for name, scale in model.named_buffers():
                if name.endswith(("layer_scalar", "expert_bias")):
                    scale.add_(torch.rand(scale.shape, generator=random) - 0.5)
        return model

    def save(self, folder: Path) -> torch.nn.Module:
        """As people download it."""
        model = self.make()
        model.save_pretrained(folder)
        write_tokenizer(folder / "tokenizer.json")
        return model


@cache
def tinies() -> dict[str, dict[str, Tiny]]:
    """By family and variant."""
    checkpoints = {}
    for entry in iter_modules(__path__):
        module = import_module(f"{__name__}.{entry.name}")
        variants = {name: Tiny(entry.name, name, module.MODEL_TYPE, fields) for name, fields in module.VARIANTS.items()}
        checkpoints[entry.name] = variants
    return checkpoints


def first(family: str) -> Tiny:
    return next(iter(tinies()[family].values()))


def max_divergence(family: str) -> float:
    """Return how far a second quantization may change next-token distributions, in nats."""
    bound: float = getattr(import_module(f"{__name__}.{family}"), "MAX_DIVERGENCE", MAX_DIVERGENCE)
    return bound


def tokens(count: int = PREFILL + DECODE) -> list[int]:
    return [int(token) for token in np.random.default_rng(3).integers(3, VOCABULARY, count)]


def write_tokenizer(path: Path, count: int = VOCABULARY) -> None:
    """A character per token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({chr(32 + i): i for i in range(count)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path))
