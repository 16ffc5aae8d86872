"""Build the torch module of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoints.architecture import Architecture
from ..checkpoints.family import Checkpoint
from ..errors import FormatError
from ..suppress_output import suppress_logs

if TYPE_CHECKING:
    import torch


def _decoder(model: Architecture, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Return the decoder of an architecture, with parameters on torch's current device."""
    from .modules.decoder import Decoder
    from .modules.recurrent import ConvDecoder, DeltaDecoder

    if any(layer.delta is not None for layer in model.layers):
        return DeltaDecoder(model, max_context, max_tokens)
    if any(layer.taps for layer in model.layers):
        return ConvDecoder(model, max_context)
    return Decoder(model.with_rows(max_context, max_tokens), max_context)


def build_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Return the module of a checkpoint with its weights, as f32."""
    module = empty_module(source, max_context, max_tokens)
    fill(module, source)
    return module


def empty_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Return the module of a checkpoint with parameters on the meta device, for `fill` to read."""
    return _meta_module(source.architecture, max_context, max_tokens)


def fill(module: torch.nn.Module, source: Checkpoint, part: str = "") -> None:
    """Read the parameters whose names begin with `part`, such as `layers.3.`, and that are not read yet."""
    import torch

    for name, parameter in list(module.named_parameters()):
        if not name.startswith(part) or not parameter.is_meta:
            continue
        weight = torch.tensor(source.weights.read(name))
        if weight.shape != parameter.shape:
            raise FormatError(
                argument=name,
                expected=f"the shape {list(parameter.shape)}",
                got=list(weight.shape),
                code="tensor_shape",
            )
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, torch.nn.Parameter(weight, requires_grad=False))


def _meta_module(model: Architecture, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Build a module without memory for its parameters."""
    import torch

    with suppress_logs(), torch.device("meta"):
        module = _decoder(model, max_context, max_tokens).eval()
    absent = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    assert not absent, f"buffers on the meta device: {absent}; create them with device='cpu'"
    return module
