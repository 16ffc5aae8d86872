"""Choose the format of each layer of a program from the formats of its checkpoint, and quantize it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..export.family import Checkpoint
from ..export.ggml import GROUP
from ..export.quantization.grid import check_range
from ..export.quantization.recipe import EMBEDDING, INT8, Recipe, WeightFormat, linear_recipe
from .quantize import Grouped, grouped, pack_embedding, pack_linear, pack_rows, part_rows

Array = np.ndarray[Any, Any]
FOUR_BITS = WeightFormat("4w", GROUP)
ZERO = 8  # the code of zero in Q4_0
# Layers that lose the most in 4 bits: of SmolLM2's KL divergence, 75 % are theirs, with 40 % of the weights. Layers of
# one input have one format, so that they are computed together.
SENSITIVE = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w2")


def default_recipe(source: Checkpoint) -> Recipe:
    """Return the formats of linear layers and embedding.

    Layers that the checkpoint has in 4 bits without offsets (Q4_0) keep their values. Of the others, sensitive layers
    and those with more bits in the checkpoint have 8 bits, the rest 4. The embedding has 4 bits, the head 8.
    """
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in source.weights.sources.items()}
    linears = {name: shape for name, shape in shapes.items() if len(shape) == 2 and name != EMBEDDING}
    recipe = linear_recipe(linears, "4w", GROUP, "8")
    for name, kind in recipe.linears.items():
        if kind == FOUR_BITS and _needs_more_bits(source, name):
            recipe.linears[name] = INT8
    width = source.architecture.dim
    return replace(recipe, embedding=INT8 if width % GROUP or width == GROUP else FOUR_BITS)


def _needs_more_bits(source: Checkpoint, name: str) -> bool:
    kind = source.weights.stored_type(f"{name}.weight")
    if kind is not None and kind.name == "Q4_0":
        return False
    part = name.split(".", 2)[-1]
    return part in SENSITIVE or (kind is not None and kind.bits > 4)


def holds_q4_0(kind: WeightFormat) -> bool:
    """Return whether a format has all values of Q4_0."""
    return kind.bits == 4 and kind.group == GROUP


def packed(name: str, weight: Grouped, kind: WeightFormat) -> tuple[Array, Array]:
    """Return the codes and scales of a layer or of the embedding, in the layout of its op."""
    if kind.bits == 8:
        return pack_rows(weight)
    return pack_embedding(weight) if name == EMBEDDING else pack_linear(weight)


PARTS_AT_ONCE = 64  # of a matrix are read together, so that a large one is never in memory as floats


class ProgramWeights:
    """The parameters of a checkpoint as the constants of a program, computed one at a time."""

    def __init__(self, source: Checkpoint) -> None:
        self._weights = source.weights

    def read(self, name: str) -> Array:
        """Return a parameter as f32."""
        return self._weights.read(name)

    def codes(self, name: str, kind: WeightFormat) -> tuple[Array, Array]:
        """Return the codes and scales of a layer or of the embedding, in the layout of its op."""
        return packed(name, self.quantized(name, kind), kind)

    def quantized(self, name: str, kind: WeightFormat) -> Grouped:
        """Return the codes of a layer: its exact values if the format has them, otherwise those of least error."""
        parameter = f"{name}.weight"
        if holds_q4_0(kind) and (same := self._exact(parameter)) is not None:
            return same
        rows, columns = self._weights.sources[parameter].shape
        group = kind.group or columns
        codes, scales = np.empty((rows, columns), np.int8), np.empty((rows, columns // group), np.float32)
        start = 0
        for part in self._weights.parts(parameter, PARTS_AT_ONCE * part_rows(columns)):
            check_range(parameter, part)
            rounded = grouped(part, kind.bits, group)
            end = start + len(part)
            codes[start:end], scales[start:end] = rounded.codes, rounded.scales
            start = end
        return Grouped(codes, scales)

    def _exact(self, parameter: str) -> Grouped | None:
        """Return a parameter that the checkpoint has in Q4_0, with the same values."""
        kind = self._weights.stored_type(parameter)
        stored = self._weights.affine(parameter) if kind is not None and kind.name == "Q4_0" else None
        if stored is None:
            return None
        codes = (stored.codes - np.uint8(ZERO)).view(np.int8)
        return Grouped(codes.reshape(len(codes), -1), stored.steps)
