"""Choose the layers that get 8 bits within a budget: those that lose the most in 4 bits.

The loss of a unit, the layers of one input, is measured on the device: the model reads a text in f32, and again from
the unit's block on with only that unit rounded. All blocks are in memory as floats meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import EMBEDDING, INT8, UNQUANTIZED, Recipe, Shape, WeightFormat
from ..errors import InputError
from ..measure.evaluation import kl, log_softmax
from ..progress import OnProgress, Progress, ignore
from ..typing import Array
from .blocks import FLOATS, BlockPrograms, Unit
from .context import ProgramSizes
from .recipe import ProgramWeights

MAX_MEASURED_TOKENS = 128  # for each unit
ROWS_AT_ONCE = 32  # of logits: a row of a large vocabulary is 2 MB in f64


def within_budget(
    source: Checkpoint,
    recipe: Recipe,
    budget: float,
    piece: Sequence[int],
    sizes: ProgramSizes,
    progress: OnProgress = ignore,
) -> Recipe:
    """Return the recipe with as many layers in 8 bits as `budget` allows, measured on the first tokens of a piece.

    `budget` is in bits per weight of all layers and the embedding.
    """
    kinds = dict(recipe.linears)
    shapes = {name: source.weights.sources[f"{name}.weight"].shape for name in (*kinds, EMBEDDING)}
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
    losses = unit_losses(source, recipe, piece[:MAX_MEASURED_TOKENS], sizes, progress)
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


class _RoundedWeights(ProgramWeights):
    """The parameters in f32, with the layers of a recipe rounded."""

    def __init__(self, source: Checkpoint, recipe: Recipe) -> None:
        super().__init__(source)
        self._formats = recipe.linears

    def read(self, name: str) -> Array:
        layer = name.removesuffix(".weight")
        kind = self._formats.get(layer) if name != layer else None
        return super().read(name) if kind is None else self.quantized(layer, kind).values()


def unit_losses(
    source: Checkpoint, recipe: Recipe, piece: Sequence[int], sizes: ProgramSizes, progress: OnProgress = ignore
) -> dict[Unit, float]:
    """Return, for each 4-bit unit of the blocks, the KL divergence of the model with only that unit rounded."""
    losses: dict[Unit, float] = {}
    count, floats = source.architecture.n_layers, ProgramWeights(source)
    with BlockPrograms(source, sizes, keep=count + 1) as model, BlockPrograms(source, sizes) as changed:
        blocks = [model.block(number, FLOATS, floats) for number in range(count)]
        head = model.head(FLOATS, floats)
        inputs = model.pieces([piece], FLOATS, floats)
        for block in blocks:
            inputs.append(model.run(block, inputs[-1]))
        reference = log_softmax(model.logits(head, inputs[-1].hidden))  # (S, V)
        for number in range(count):
            for unit in model.units(number):
                if any(recipe.linears.get(name, UNQUANTIZED).bits != 4 for name in unit):
                    continue
                rounded = _RoundedWeights(source, Recipe(_of(recipe.linears, unit)))
                state = model.run(changed.block(number, FLOATS, rounded), inputs[number])
                for block in blocks[number + 1 :]:
                    state = model.run(block, state)
                losses[unit] = _divergence(reference, model.logits(head, state.hidden))
            progress(Progress("choose", number + 1, count, "blocks"))
    return losses


def _divergence(reference: Array, logits: Array) -> float:
    """Return the mean KL divergence of logits (S, V) from log-probabilities, in nats."""
    starts = range(0, len(logits), ROWS_AT_ONCE)
    parts = [(reference[at : at + ROWS_AT_ONCE], logits[at : at + ROWS_AT_ONCE]) for at in starts]
    rows = np.concatenate([kl(expected, log_softmax(part)) for expected, part in parts])
    return max(0.0, float(rows.mean()))
