"""Choose the format of each layer of a program from the formats of its checkpoint, and quantize it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ..checkpoints.family import Checkpoint
from ..checkpoints.ggml import GROUP, TensorType
from ..checkpoints.recipe import (
    EMBEDDING,
    EXPERT,
    FLOAT_LAYERS,
    INT8,
    MXFP4,
    PER_LAYER_EMBEDDING,
    Recipe,
    Shape,
    WeightFormat,
    linear_recipe,
)
from ..checkpoints.weights import CheckpointWeights
from ..typing import Array
from .exact import exact_codes
from .quantize import (
    FOUR_BITS,
    FOUR_BITS_WITH_OFFSETS,
    Grouped,
    check_range,
    grouped,
    pack_embedding,
    pack_linear,
    pack_rows,
    part_rows,
)

EMBEDDINGS = (EMBEDDING, PER_LAYER_EMBEDDING)
ZERO = 8  # the code of zero in a layer with 4 bits
# Layers of a checkpoint in floats that lose the most in 4 bits: of SmolLM2's KL divergence, 75 % are theirs, with 40 %
# of the weights. Layers of one input have one format, so that they are computed together.
SENSITIVE = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w2")


def default_recipe(source: Checkpoint) -> Recipe:
    """Return the formats of linear layers and embedding.

    Layers that the checkpoint has in 4 bits keep their codes and scales, and their offsets in 8 bits if the type has
    offsets. Layers with more bits in the checkpoint have 8. Of those in floats, sensitive layers have 8 bits, the rest
    4. The embedding has 4 bits, the head 8. Experts that are in MXFP4 in the checkpoint stay so.
    """
    recipe = linear_recipe(linear_shapes(source), "4w", GROUP, "8")
    for name, kind in recipe.linears.items():
        if kind == FOUR_BITS and EXPERT not in name:
            recipe.linears[name] = layer_format(source.weights.stored_type(f"{name}.weight"), name)
    mixtures: dict[str, list[str]] = defaultdict(list)
    for name in recipe.linears:
        if EXPERT in name:
            mixtures[name.partition(EXPERT)[0]].append(name)
    for names in mixtures.values():  # a call has one format
        if all(source.weights.has_codes(f"{name}.weight") for name in names):
            recipe.linears.update(dict.fromkeys(names, MXFP4))
    embedding = FOUR_BITS if takes_embedding(source.architecture.dim) else INT8
    return replace(with_per_layer_embedding(recipe, source), embedding=embedding)


def with_per_layer_embedding(recipe: Recipe, source: Checkpoint) -> Recipe:
    """Return the recipe with 4 bits for the embeddings of layers, which are larger than the layers."""
    weight = source.weights.sources.get(f"{PER_LAYER_EMBEDDING}.weight")
    if weight is None or not takes_embedding(weight.shape[1]):
        return recipe
    return replace(recipe, linears={**recipe.linears, PER_LAYER_EMBEDDING: FOUR_BITS})


def takes_embedding(width: int) -> bool:
    """Return whether rows of an embedding have several groups of 4-bit codes."""
    return width % GROUP == 0 and width > GROUP


def linear_shapes(source: Checkpoint) -> dict[str, Shape]:
    """Return the shape of each linear layer by name."""
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in source.weights.sources.items()}
    return {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and name not in EMBEDDINGS and not name.endswith(FLOAT_LAYERS)
    }


def layer_format(kind: TensorType | None, name: str) -> WeightFormat:
    """Return the format of a layer that can have 4 bits; `kind` is its type in the checkpoint unless that is floats."""
    if kind is None:
        return INT8 if name.split(".", 2)[-1] in SENSITIVE else FOUR_BITS
    if kind.bits > 4 or kind.affine is None:
        return INT8
    return FOUR_BITS if kind.name == "Q4_0" else FOUR_BITS_WITH_OFFSETS


def holds_q4_0(kind: WeightFormat) -> bool:
    """Return whether a format has all values of Q4_0, whose groups it may divide."""
    return kind.bits == 4 and kind.group > 0 and GROUP % kind.group == 0


def packed(name: str, weight: Grouped, kind: WeightFormat) -> tuple[Array, Array]:
    """Return the codes and scales of a layer or of the embedding, in the layout of its op."""
    if kind.bits == 8:
        return pack_rows(weight)
    return pack_embedding(weight) if name in EMBEDDINGS else pack_linear(weight)


def nearest_codes(parameter: str, weight: Array, bits: int, group: int) -> Grouped:
    """Return the codes of a weight (N, K) that reproduce it exactly, if there are any, or those of least error."""
    exact = exact_codes(weight, bits, group)
    if exact is not None:
        return exact
    check_range(parameter, weight)
    return grouped(weight, bits, group)


def squares(values: Array) -> float:
    """Return the sum of the squares."""
    return float(np.vdot(values, values))


PARTS_AT_ONCE = 64  # of a matrix are read together, so that a large one is never in memory as floats


class QuantizedWeights:
    """Parameters as the constants of a program, computed one at a time."""

    def __init__(self, weights: CheckpointWeights) -> None:
        self._weights = weights
        # Of layers that were quantized, by name: the mean squared error, relative to the mean square of the weight.
        self.errors: dict[str, float] = {}

    def read(self, name: str) -> Array:
        """Return a parameter as f32."""
        return self._weights.read(name)

    def codes(self, name: str, kind: WeightFormat) -> tuple[Array, Array]:
        """Return the codes and scales of a layer or of the embedding, in the layout of its op."""
        if kind == MXFP4:
            self.errors[name] = 0.0
            codes, scales = self._weights.codes(f"{name}.weight")
            check_range(name, np.exp2(scales - 127.0))
            return codes, np.ascontiguousarray(scales.T)
        return packed(name, self.quantized(name, kind), kind)

    def quantized(self, name: str, kind: WeightFormat) -> Grouped:
        """Return the codes of a layer: its exact values if the format has them, otherwise those of least error."""
        parameter = f"{name}.weight"
        stored = self._weights.affine(parameter) if self.is_exact(name, kind) else None
        if stored is not None:
            self.errors[name] = 0.0
            codes = (stored.codes - np.uint8(ZERO)).view(np.int8).reshape(len(stored.codes), -1)
            return Grouped(codes, np.repeat(stored.steps, GROUP // kind.group, axis=1))
        rows, columns = self._weights.sources[parameter].shape
        group = kind.group or columns
        codes, scales = np.empty((rows, columns), np.int8), np.empty((rows, columns // group), np.float32)
        start, wrong, whole = 0, 0.0, 0.0
        for part in self._weights.parts(parameter, PARTS_AT_ONCE * part_rows(columns)):
            rounded = nearest_codes(parameter, part, kind.bits, group)
            end = start + len(part)
            codes[start:end], scales[start:end] = rounded.codes, rounded.scales
            wrong, whole = wrong + squares(part - rounded.values()), whole + squares(part)
            start = end
        self.errors[name] = wrong / whole if whole else 0.0
        return Grouped(codes, scales)

    def offsets(self, name: str) -> tuple[Array, Array]:
        """Return the codes (G, N) and the scales (N,) of the offsets of a layer's groups, in 8 bits."""
        stored = self._weights.affine(f"{name}.weight")
        assert stored is not None, name
        values = stored.offsets + np.float32(ZERO) * stored.steps  # (N, G)
        check_range(name, values)
        codes, scales = pack_rows(grouped(values, 8, values.shape[1]))
        return np.ascontiguousarray(codes.T), scales

    def is_exact(self, name: str, kind: WeightFormat) -> bool:
        """Return whether the format holds the codes and scales that the checkpoint has."""
        stored = self._weights.stored_type(f"{name}.weight")
        symmetric = stored is not None and stored.name == "Q4_0"
        return kind in (FOUR_BITS_WITH_OFFSETS, MXFP4) or (holds_q4_0(kind) and symmetric)


class ProgramWeights(QuantizedWeights):
    """The parameters of a language model's checkpoint as the constants of its program."""

    def __init__(self, source: Checkpoint) -> None:
        super().__init__(source.weights)
        self.source = source
