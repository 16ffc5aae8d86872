"""Build modules around the transformer of an encoder: pooling and linears, or the inputs of a cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError

if TYPE_CHECKING:
    import torch


def sentence_encoder(
    bert: torch.nn.Module, pooling: str, layers: Sequence[torch.nn.Module], normalize: bool
) -> torch.nn.Module:
    """Return a module from tokens and their mask (B, T), 1 for tokens and 0 for padding, to vectors (B, D)."""
    import torch

    class SentenceEncoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, tokens: Any, mask: Any) -> Any:
            hidden = self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state  # (B, T, C)
            vector = self.layers(pool(hidden, mask, pooling))  # (B, D)
            return torch.nn.functional.normalize(vector, dim=1) if normalize else vector

    return SentenceEncoder().eval()


def cross_encoder(model: torch.nn.Module, segments: bool) -> torch.nn.Module:
    """Return a module from the tokens of pairs, their mask and, with `segments`, 1 for tokens of the second text, all
    (B, T), to logits (B, 1)."""
    import torch

    class CrossEncoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, mask: Any, types: Any = None) -> Any:
            more = {"token_type_ids": types} if segments else {}
            return self.model(input_ids=tokens, attention_mask=mask, **more).logits

    return CrossEncoder().eval()


def pool(hidden: Any, mask: Any, pooling: str) -> Any:
    """Pool vectors of tokens (B, T, C) to one vector per text (B, C)."""
    import torch

    if pooling == "cls":
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
    if pooling == "max":
        return (hidden + (weights - 1) * 1e9).amax(1)
    if pooling == "mean":
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    count = mask.sum(1, keepdim=True)  # (B, 1)
    last = torch.arange(1, mask.shape[1] + 1, device=mask.device).unsqueeze(0) == count  # (B, T)
    return (hidden * last.unsqueeze(-1).to(hidden.dtype)).sum(1)


def dense(folder: Path, config: Mapping[str, Any]) -> torch.nn.Sequential:
    """Return the linear and the activation of a Dense module."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    linear = torch.nn.Linear(config["in"], config["out"], bias=config["bias"])
    try:
        weights = load_file(folder / "model.safetensors")
        linear.load_state_dict({name.removeprefix("linear."): tensor.float() for name, tensor in weights.items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        raise FormatError(
            f"{folder / 'model.safetensors'} does not hold the linear of {dict(config)}: {error}", code="tensors"
        ) from error
    return torch.nn.Sequential(linear, getattr(torch.nn, config["activation"])())
