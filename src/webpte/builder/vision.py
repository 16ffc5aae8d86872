"""Record the calls of an image encoder: patches, layers of attention, and the connector to the decoder."""

from __future__ import annotations

from dataclasses import replace

from ..checkpoints.recipe import INT8, UNQUANTIZED, Recipe, WeightFormat, fits
from ..checkpoints.vision_tower import Vision, VisionTower
from ..container import DType
from .layers import LayerTrace
from .recipe import QuantizedWeights
from .trace import Dim, TracedInt, TracedMethod, TracedTensor

METHOD = "vision_encoder"  # the name of ExecuTorch's runners
_FLOATS = ("vision.patches", "vision.positions")


def trace_encoder(vision: Vision, recipe: Recipe) -> TracedMethod:
    """Return the method of an image to rows (1, R, N). Layers have 8 bits if some of the decoder's do.

    Its input is the pixels (1, 3, H, W), or the patches of R blocks (R, B) and the weights of their positions (R, W).
    If queries and keys rotate, the cosines and sines of the patches (R, T) follow.
    """
    formats = vision_formats(vision, recipe)
    layers = LayerTrace(vision.weights.sources, formats, QuantizedWeights(vision.weights))
    specs = {} if vision.tower.image_side is not None else {"require_dynamic_shapes": b"\1"}
    return layers.method(METHOD, [VisionTrace(layers, vision.tower).rows()], specs)


def vision_formats(vision: Vision, recipe: Recipe) -> dict[str, WeightFormat]:
    """Return the format of each linear layer of an encoder whose decoder has the formats of `recipe`."""
    if all(kind == UNQUANTIZED for kind in recipe.linears.values()):
        return {}
    sources = vision.weights.sources.items()
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in sources if len(weight.shape) == 2}
    return {name: INT8 for name, shape in shapes.items() if name not in _FLOATS and fits(INT8, (shape[0], shape[1]))}


class VisionTrace:
    """An encoder of one image. Each part is recorded when its method is called."""

    def __init__(self, layers: LayerTrace, tower: VisionTower) -> None:
        self.g = layers
        self.tower = tower
        self._turns: list[TracedTensor] = []  # cosines and sines of each patch, (P, D)

    def rows(self) -> TracedTensor:
        """Record the encoder and its connector; return the rows of the decoder's input, (1, R, N)."""
        tower = self.tower
        if tower.image_side is not None:
            return self._connected(self._square_blocks(self._encoded(self._square(tower.image_side))))
        rows, x = self._patches()
        return self._connected(self.g.view(self._encoded(x), (1, rows, tower.block * tower.dim)))

    def _encoded(self, x: TracedTensor) -> TracedTensor:
        for number in range(self.tower.n_layers):
            x = self._layer(x, f"vision.layers.{number}")
        return self._norm(x, "vision.norm", self.tower.norm_eps)

    def _square(self, side: int) -> TracedTensor:
        """Record the features of the patches of a square (1, P, C). The convolution is a layer over patches."""
        g, tower = self.g, self.tower
        count, patch = tower.position_side, tower.patch_side
        pixels = g.input("pixels", DType.FLOAT32, (1, 3, side, side))
        split = g.view(pixels, (3, count, patch, count, patch))
        flat = g.view(g.permute(split, (1, 3, 0, 2, 4)), (tower.positions, tower.patch_columns))
        kernel = replace(g.parameter("vision.patches.weight"), dims=(tower.dim, tower.patch_columns))
        features = self._features(flat, kernel, tower.positions)
        positions = g.packed(g.parameter("vision.positions.weight"))
        return g.view(g.add(features, positions), (1, tower.positions, tower.dim))

    def _patches(self) -> tuple[TracedInt, TracedTensor]:
        """Record the features of patches in blocks; return the number of blocks, and the features (1, P, C)."""
        g, tower = self.g, self.tower
        rows = TracedInt(tower.max_rows)
        blocks = g.input("patches", DType.FLOAT32, (rows, tower.block * tower.patch_columns))
        weights = g.input("positions", DType.FLOAT32, (rows, tower.block * tower.positions))
        width = tower.block * tower.head_dim
        turns = [g.input(name, DType.FLOAT32, (rows, width)) for name in ("cosines", "sines") if tower.rotates]
        rows = g.size(blocks, 0)
        count = g.times(rows, tower.block)
        self._turns = [g.view(each, (count, tower.head_dim)) for each in turns]
        flat = g.view(blocks, (count, tower.patch_columns))
        features = self._features(flat, self._patch_weights(), count)
        table = g.packed(g.parameter("vision.positions.weight"))
        by_patch = g.view(weights, (count, tower.positions))
        positions = g.call("aten.mm.default", by_patch, table, dims=(count, tower.dim))
        return rows, g.view(g.add(features, positions), (1, count, tower.dim))

    def _patch_weights(self) -> TracedTensor:
        """Return the weights of a patch's colors (C, B). The frames of an image are equal, so theirs are summed."""
        tower, name = self.tower, "vision.patches.weight"
        if tower.frames == 1:
            return self.g.parameter(name)
        shape = (tower.dim, tower.patch_columns)
        return self.g.parameter(name, lambda values: values.sum(axis=2).reshape(shape), shape)

    def _features(self, flat: TracedTensor, kernel: TracedTensor, count: Dim) -> TracedTensor:
        bias = self.g.parameter("vision.patches.bias")
        return self.g.call("aten.linear.default", flat, kernel, bias, dims=(count, self.tower.dim))

    def _layer(self, x: TracedTensor, name: str) -> TracedTensor:
        g, tower = self.g, self.tower
        normed = self._norm(x, f"{name}.norm1", tower.norm_eps)
        q, k, v = (g.linear(normed, f"{name}.{part}", tower.n_heads) for part in ("wq", "wk", "wv"))
        if self._turns:
            q, k = g.call_several("et_vk.apply_rotary_emb_hf.default", q, k, *self._turns, 0, dims=(q.dims, k.dims))
        mixed = g.permute(g.attention(*(g.permute(each, (0, 2, 1, 3)) for each in (q, k, v))), (0, 2, 1, 3))
        x = g.add(x, g.linear(g.view(mixed, x.dims), f"{name}.wo"))
        hidden = g.gelu_tanh(g.linear(self._norm(x, f"{name}.norm2", tower.norm_eps), f"{name}.w1"))
        return g.add(x, g.linear(hidden, f"{name}.w2"))

    def _norm(self, x: TracedTensor, name: str, eps: float) -> TracedTensor:
        g = self.g
        return g.layer_norm(x, g.parameter(f"{name}.weight"), g.parameter(f"{name}.bias"), eps)

    def _square_blocks(self, x: TracedTensor) -> TracedTensor:
        """Record the features of the patches of each block as one row, (1, R, B * B * C)."""
        g, tower = self.g, self.tower
        blocks, block = tower.position_side // tower.block_side, tower.block_side
        split = g.view(x, (blocks, block, blocks, block * tower.dim))
        return g.view(g.permute(split, (0, 2, 1, 3)), (1, tower.max_rows, tower.block * tower.dim))

    def _connected(self, x: TracedTensor) -> TracedTensor:
        """Record the connector."""
        g, tower, connector = self.g, self.tower, self.tower.connector
        if connector.averages:
            x = g.mean(g.view(x, (1, tower.max_rows, tower.block, tower.dim)), 2)
            x = g.norm(x, "vision.connector.norm", connector.norm_eps or 0.0)
        elif connector.norm_eps is not None:
            x = self._norm(x, "vision.connector.norm", connector.norm_eps)
        if connector.hidden_dim is None:
            return g.linear(x, "vision.connector")
        return g.linear(g.gelu(g.linear(x, "vision.connector.w1")), "vision.connector.w2")
