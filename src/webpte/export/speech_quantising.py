"""Whisper's linear layers and its table of tokens, quantised before they are lowered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..progress import OnProgress, ignore
from .kernel_noise import quiet
from .quantising import Report, quantise
from .quantising.quantise import shapes_of
from .quantising.recipe import EIGHT, check_quantizer, linear_recipe

if TYPE_CHECKING:
    import torch

_KINDS = ("4w", "8w")
_TABLE, _HEAD = "model.decoder.embed_tokens", "proj_out"  # one tensor in the checkpoint
_ROWS = 4  # the exporter takes rows by fours


def check_speech_quantizer(mode: str, group_size: int) -> None:
    if mode not in _KINDS:
        raise InputError(f"quantize is one of {', '.join(_KINDS)} for a model of speech, not {mode!r}")
    check_quantizer(mode, group_size)


def quantise_speech(model: Any, mode: str, group_size: int, progress: OnProgress = ignore) -> Report:
    """In place. The head may get rows of zeros, which the module of the decoder leaves out of its result."""
    with quiet():
        model.proj_out = _filled(model.proj_out)
        recipe = linear_recipe(shapes_of(model), mode, group_size)
        recipe.linears[_HEAD] = recipe.embedding = EIGHT
        return quantise(model, recipe, embedding=_TABLE, progress=progress)


def _filled(head: torch.nn.Linear) -> torch.nn.Linear:
    """Of its own, so that the table stays as it is until it is quantised, with a number of rows that is taken."""
    import torch

    rows = -(-head.out_features // _ROWS) * _ROWS
    filled = torch.nn.Linear(head.in_features, rows, bias=False)
    with torch.no_grad():
        filled.weight.zero_()
        filled.weight[: head.out_features] = head.weight
    return filled
