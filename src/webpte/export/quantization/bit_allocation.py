"""Choose the layers that get 8 bits within a budget: those that lose the most in 4 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...builder.quantize import check_range
from ...checkpoints.recipe import EMBEDDING, INT8, Recipe, Shape, WeightFormat
from ...errors import InputError
from ...progress import OnProgress, Progress, ignore
from .calibration import Calibration
from .grid import least_squares

if TYPE_CHECKING:
    import torch

Unit = tuple[str, ...]  # layers of one input: they are computed together only if they have one format
MAX_MEASURED_TOKENS = 128  # for each unit


def within_budget(
    module: torch.nn.Module,
    recipe: Recipe,
    budget: float,
    pieces: Sequence[Sequence[int]],
    progress: OnProgress = ignore,
) -> Recipe:
    """Return the recipe with as many layers in 8 bits as `budget` allows.

    `budget` is in bits per weight of all layers and the embedding.
    """
    shapes = {name: tuple(module.get_parameter(f"{name}.weight").shape) for name in (*recipe.linears, EMBEDDING)}
    kinds = dict(recipe.linears)
    weights = sum(rows * columns for rows, columns in shapes.values())
    remaining = budget * weights - bits_of({**kinds, EMBEDDING: recipe.embedding}, shapes)
    if remaining < 0:
        minimum = budget - remaining / weights
        raise InputError(
            argument="bits_per_weight",
            expected=f"at least {minimum:.2f} bits per weight, which every layer in 4 bits needs",
            got=f"{budget:g}",
            code="bits_per_weight",
            hint="Raise bits_per_weight, use larger groups, or quantize embedding and head to 4 bits.",
        )
    losses = measure_losses(module, recipe, list(pieces[0])[:MAX_MEASURED_TOKENS], progress)
    costs = {unit: bits_of(dict.fromkeys(unit, INT8), shapes) - bits_of(_of(kinds, unit), shapes) for unit in losses}
    raised: list[str] = []
    for unit in sorted(losses, key=lambda unit: losses[unit] / costs[unit], reverse=True):
        if costs[unit] <= remaining:
            remaining -= costs[unit]
            kinds |= dict.fromkeys(unit, INT8)
            raised += unit
    note = f"{len(raised)} of {len(kinds)} layers have 8 bits: those that lose the most in 4 bits"
    return replace(recipe, linears=kinds, notes=[*recipe.notes, note])


def bits_of(kinds: Mapping[str, WeightFormat], shapes: Mapping[str, Shape]) -> float:
    return sum(
        shapes[name][0] * shapes[name][1] * kind.bits_per_weight(shapes[name][1]) for name, kind in kinds.items()
    )


def _of(kinds: Mapping[str, WeightFormat], unit: Unit) -> dict[str, WeightFormat]:
    return {name: kinds[name] for name in unit}


def measure_losses(
    module: torch.nn.Module, recipe: Recipe, piece: Sequence[int], progress: OnProgress = ignore
) -> dict[Unit, float]:
    """Return, for each 4-bit unit of the blocks, the KL divergence of the model with only that unit rounded."""
    losses: dict[Unit, float] = {}
    with Calibration(module, [piece]).first_piece() as text:
        reference = text.predictions(0, None)
        for number in range(text.blocks):
            for unit in text.units(number):
                if not all(name in recipe.linears and recipe.linears[name].bits == 4 for name in unit):
                    continue
                weights = {name: module.get_parameter(f"{name}.weight").data for name in unit}
                try:
                    for name, weight in weights.items():
                        kind = recipe.linears[name]
                        check_range(f"{name}.weight", weight)
                        rounded = least_squares(weight, kind.group or weight.shape[1], kind.bits)
                        module.get_parameter(f"{name}.weight").data = rounded.values()
                    rounded_predictions = text.predictions(number, text.block_input(number))
                finally:
                    for name, weight in weights.items():
                        module.get_parameter(f"{name}.weight").data = weight
                losses[unit] = float((reference.exp() * (reference - rounded_predictions)).sum(-1).mean().clamp(min=0))
            progress(Progress("choose", number + 1, text.blocks, "blocks"))
    return losses
