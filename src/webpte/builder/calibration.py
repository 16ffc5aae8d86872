"""Round the weights of a language model for their inputs: run it on the device, block by block, while it reads a text.

Each block reads the hidden states after the blocks before it, which are quantized already. The outputs of a block in
f32 include the inputs of its linear layers. The weights of one block are in memory as floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import HEAD, UNQUANTIZED, Recipe, WeightFormat
from ..progress import OnProgress, ignore
from ..typing import Array
from .blocks import FLOATS, BlockPrograms, PieceStates, TokenProgress, Unit
from .compensation import InputMoments, compensated
from .context import ProgramSizes
from .exact import exact_codes
from .quantize import Grouped, check_range
from .recipe import ProgramWeights, packed, squares


class CalibratedWeights(ProgramWeights):
    """The parameters of a checkpoint, with layers that were rounded for their inputs. They are kept until read."""

    def __init__(self, source: Checkpoint) -> None:
        super().__init__(source)
        self._packed: dict[str, tuple[Array, Array]] = {}

    def codes(self, name: str, kind: WeightFormat) -> tuple[Array, Array]:
        return self._packed[name] if name in self._packed else super().codes(name, kind)

    def calibrate(self, names: Sequence[str], kind: WeightFormat, moments: InputMoments) -> None:
        """Round layers of one input and format together. Layers whose exact values the format has keep them."""
        weights = {name: self.read(f"{name}.weight") for name in names if not self.is_exact(name, kind)}
        if not weights:
            return
        group = kind.group or next(iter(weights.values())).shape[1]
        for name, weight in list(weights.items()):
            if (exact := exact_codes(weight, kind.bits, group)) is not None:
                self._keep(name, kind, weight, exact)
                del weights[name]
            else:
                check_range(f"{name}.weight", weight)
        if not weights:
            return
        together = compensated(np.concatenate([*weights.values()]), group, kind.bits, moments)
        start = 0
        for name, weight in weights.items():
            self._keep(name, kind, weight, together.rows(slice(start, start + len(weight))))
            start += len(weight)

    def _keep(self, name: str, kind: WeightFormat, weight: Array, codes: Grouped) -> None:
        self._packed[name] = packed(name, codes, kind)
        whole = squares(weight)
        self.errors[name] = squares(weight - codes.values()) / whole if whole else 0.0


def calibrated_weights(
    source: Checkpoint,
    recipe: Recipe,
    pieces: Sequence[Sequence[int]],
    sizes: ProgramSizes,
    progress: OnProgress = ignore,
) -> CalibratedWeights:
    """Return the weights of a checkpoint, rounded for the inputs that layers have in pieces of a text."""
    weights = CalibratedWeights(source)
    count = source.architecture.n_layers
    steps = TokenProgress(progress, "calibrate", 2 * count * sum(map(len, pieces)))
    with BlockPrograms(source, sizes) as blocks:
        states = blocks.pieces(pieces, FLOATS, ProgramWeights(source))
        for number in range(count):
            moments: dict[Unit, Array] = {}
            block, units = blocks.float_block(number)
            for piece in states:
                tokens = piece.hidden.shape[1]
                for unit, rows in zip(units, block(piece)[-len(units) :], strict=True):
                    flat = rows.reshape(tokens, -1)  # (S, K)
                    moments[unit] = moments.get(unit, 0) + flat.T @ flat
                steps.add(tokens)
            for unit, total in moments.items():
                _calibrate_unit(weights, recipe, unit, total)
            block = blocks.block(number, recipe, weights)
            for i, piece in enumerate(states):
                states[i] = blocks.run(block, piece)
                steps.add(piece.hidden.shape[1])
    if recipe.linears.get(HEAD, UNQUANTIZED).bits == 4:  # with 8 bits the gain is small, and the head has many rows
        _calibrate_unit(weights, recipe, (HEAD,), _head_moments(source, states))
    return weights


def _calibrate_unit(weights: CalibratedWeights, recipe: Recipe, unit: Unit, moments: Array) -> None:
    kinds = {name: recipe.linears[name] for name in unit if recipe.linears.get(name, UNQUANTIZED) != UNQUANTIZED}
    if not kinds:
        return
    damped = InputMoments(moments)
    for kind in dict.fromkeys(kinds.values()):
        weights.calibrate([name for name in kinds if kinds[name] == kind], kind, damped)


def _head_moments(source: Checkpoint, pieces: Sequence[PieceStates]) -> Array:
    """Return the moments of the head's inputs, after the last norm."""
    rows = np.concatenate([piece.hidden[0] for piece in pieces])  # (tokens, N)
    squares = (rows * rows).mean(-1, keepdims=True)
    rows = rows / np.sqrt(squares + np.float32(source.architecture.norm_eps)) * source.weights.read("norm.weight")
    result: Array = rows.T @ rows
    return result
