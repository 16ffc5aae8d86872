"""Record the calls of an image encoder: patches, layers of attention, and the connector to the decoder."""

from __future__ import annotations

from dataclasses import replace

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import INT8, UNQUANTIZED, Recipe, WeightFormat, fits
from ..checkpoints.vision_tower import Vision, VisionTower
from ..container import DType
from .layers import LayerTrace
from .recipe import ProgramWeights
from .trace import TracedMethod, TracedTensor

METHOD = "vision_encoder"  # the name of ExecuTorch's runners


def trace_encoder(source: Checkpoint, vision: Vision, recipe: Recipe) -> TracedMethod:
    """Return the method of pixels (1, 3, H, W) to rows (1, R, N). Layers have 8 bits if some of the decoder's do."""
    formats = vision_formats(vision, recipe)
    layers = LayerTrace(vision.weights.sources, formats, ProgramWeights(replace(source, weights=vision.weights)))
    return layers.method(METHOD, [VisionTrace(layers, vision.tower).rows()], {})


def vision_formats(vision: Vision, recipe: Recipe) -> dict[str, WeightFormat]:
    """Return the format of each linear layer of an encoder whose decoder has the formats of `recipe`."""
    if all(kind == UNQUANTIZED for kind in recipe.linears.values()):
        return {}
    sources = vision.weights.sources.items()
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in sources if len(weight.shape) == 2}
    del shapes["vision.positions"]
    return {name: INT8 for name, (rows, columns) in shapes.items() if fits(INT8, (rows, columns))}


class VisionTrace:
    """An encoder of one square image. Each part is recorded when its method is called."""

    def __init__(self, layers: LayerTrace, tower: VisionTower) -> None:
        self.g = layers
        self.tower = tower

    def rows(self) -> TracedTensor:
        """Record the encoder and its connector; return the rows of the decoder's input, (1, R, N)."""
        g, tower = self.g, self.tower
        x = self._patches()
        for number in range(tower.n_layers):
            x = self._layer(x, f"vision.layers.{number}")
        return g.linear(self._blocks(self._norm(x, "vision.norm")), "vision.connector")

    def _patches(self) -> TracedTensor:
        """Record the features of patches with their positions, (1, P, C). The convolution is a layer over patches."""
        g, tower = self.g, self.tower
        side, patch = tower.patches_side, tower.patch_side
        pixels = g.input("pixels", DType.FLOAT32, (1, 3, tower.image_side, tower.image_side))
        split = g.view(pixels, (3, side, patch, side, patch))
        columns = 3 * patch * patch
        flat = g.view(g.permute(split, (1, 3, 0, 2, 4)), (tower.patches, columns))
        kernel = replace(g.parameter("vision.patches.weight"), dims=(tower.dim, columns))
        bias = g.parameter("vision.patches.bias")
        features = g.call("aten.linear.default", flat, kernel, bias, dims=(tower.patches, tower.dim))
        positions = g.packed(g.parameter("vision.positions.weight"))
        return g.view(g.add(features, positions), (1, tower.patches, tower.dim))

    def _layer(self, x: TracedTensor, name: str) -> TracedTensor:
        g, tower = self.g, self.tower
        normed = self._norm(x, f"{name}.norm1")
        heads = (
            g.permute(g.linear(normed, f"{name}.{part}", tower.n_heads), (0, 2, 1, 3)) for part in ("wq", "wk", "wv")
        )
        mixed = g.permute(g.attention(*heads), (0, 2, 1, 3))  # (1, P, H, D)
        x = g.add(x, g.linear(g.view(mixed, x.dims), f"{name}.wo"))
        hidden = g.gelu_tanh(g.linear(self._norm(x, f"{name}.norm2"), f"{name}.w1"))
        return g.add(x, g.linear(hidden, f"{name}.w2"))

    def _norm(self, x: TracedTensor, name: str) -> TracedTensor:
        g = self.g
        return g.layer_norm(x, g.parameter(f"{name}.weight"), g.parameter(f"{name}.bias"), self.tower.norm_eps)

    def _blocks(self, x: TracedTensor) -> TracedTensor:
        """Record the features of the patches of each block as one row, (1, R, B * B * C)."""
        g, tower = self.g, self.tower
        blocks, block = tower.patches_side // tower.block_side, tower.block_side
        split = g.view(x, (blocks, block, blocks, block * tower.dim))
        return g.view(g.permute(split, (0, 2, 1, 3)), (1, tower.rows, block * block * tower.dim))
