"""From a checkpoint to the torch module that is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import FormatError
from .architecture import Architecture
from .family import Checkpoint, Family
from .kernel_noise import quiet

if TYPE_CHECKING:
    import torch


def build_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """With its weights, as f32."""
    module = empty_module(source, max_context, max_tokens)
    fill(module, source)
    return module


def empty_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Its parameters take no memory yet: `fill` reads them."""
    return skeleton(source.family, source.architecture, max_context, max_tokens)


def fill(module: torch.nn.Module, source: Checkpoint, part: str = "") -> None:
    """Read the parameters whose names begin with `part`, such as `layers.3.`, one at a time, unless they are read."""
    import torch

    for name, parameter in list(module.named_parameters()):
        if not name.startswith(part) or not parameter.is_meta:
            continue
        weight = source.weights.read(name)
        if weight.shape != parameter.shape:
            raise FormatError(f"{name} is {list(weight.shape)} in the checkpoint, {list(parameter.shape)} in the model")
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, torch.nn.Parameter(weight, requires_grad=False))


def skeleton(family: Family, model: Architecture, max_context: int, max_tokens: int) -> torch.nn.Module:
    import torch

    with quiet(), torch.device("meta"):
        module = family.build(model, max_context, max_tokens).eval()
    absent = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    assert not absent, f"buffers without values: {absent}; make them with device='cpu'"
    return module


def shapes_of(family: Family, model: Architecture) -> dict[str, tuple[int, ...]]:
    """Of the parameters, by name."""
    return {name: tuple(p.shape) for name, p in skeleton(family, model, 2, 2).named_parameters()}
