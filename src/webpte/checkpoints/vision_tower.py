"""Define image encoders: a SigLIP tower, and the connector that turns its patches into rows of a decoder's input.

A kind of tower is a declaration in a file of towers/: its model types, how its fields are read, and the names of its
tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UnsupportedError
from .config import FieldRule, Fields
from .shapes import Shapes
from .weights import CheckpointWeights, StoredWeight, WeightSource, check_tensors

# Patches in a row and a column for which transformers computes the position of a patch without a rounding error that
# moves it to another position.
_EXACT_SIDES = frozenset(range(1, 65)) - {19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62}


Conversions = Mapping[str, Mapping[str, Any]]  # parameter -> fields of its WeightSource


@dataclass(frozen=True)
class Connector:
    """What turns the features of a block of patches into a row of the decoder's input."""

    output_dim: int
    hidden_dim: int | None = None  # of two layers with gelu between them; None: one layer
    bias: bool = False
    norm_eps: float | None = None  # of the layer norm before them; None: no norm
    averages: bool = False  # the patches of a block; the norm is an RMS norm

    def shapes(self, columns: int) -> Shapes:
        """Return the shapes of the parameters by name, for blocks with this number of features."""
        layers = {"vision.connector": (self.output_dim, columns)}
        if self.hidden_dim is not None:
            layers = {
                "vision.connector.w1": (self.hidden_dim, columns),
                "vision.connector.w2": (self.output_dim, self.hidden_dim),
            }
        shapes: Shapes = {f"{name}.weight": shape for name, shape in layers.items()}
        if self.bias:
            shapes |= {f"{name}.bias": shape[:1] for name, shape in layers.items()}
        if self.norm_eps is not None:
            parts = ("weight",) if self.averages else ("weight", "bias")
            shapes |= {f"vision.connector.norm.{part}": (columns,) for part in parts}
        return shapes


@dataclass(frozen=True)
class VisionTower:
    """An encoder of images, and its connector. Sizes are in pixels, or elements of a patch's features.

    The input of a tower with an `image_side` is the pixels of a square. Otherwise it is the patches of an image of any
    size, in blocks, and the weights of each patch's position: the table of positions is resized to the image. Queries
    and keys may rotate too, one half of a head's pairs by the row of a patch and the other by its column.
    """

    patch_side: int
    dim: int
    hidden_dim: int
    n_heads: int
    n_layers: int
    norm_eps: float
    position_side: int  # rows and columns of the table of positions
    block_side: int  # patches in a row and a column that become one row of the decoder's input
    connector: Connector
    max_rows: int  # of an image in the decoder's input
    image_side: int | None = None
    frames: int = 1  # of a video in a patch; an image is as many equal ones
    rotates: bool = False
    rope_sections: tuple[int, int, int] | None = None  # of the decoder: see `with_rope_axes`
    bidirectional: bool = False  # in the decoder: see `with_bidirectional_rows`

    @property
    def head_dim(self) -> int:
        return self.dim // self.n_heads

    @property
    def patch_columns(self) -> int:
        return 3 * self.patch_side**2

    @property
    def positions(self) -> int:
        return self.position_side**2

    @property
    def block(self) -> int:
        """Return the patches of a block."""
        return self.block_side**2

    def check(self, where: str) -> None:
        """Raise UnsupportedError if sizes do not divide each other."""
        divided = {"the width by the heads": (self.dim, self.n_heads)}
        if self.image_side is not None:
            divided["the image side by the patch side"] = (self.image_side, self.patch_side)
            divided["the patches in a row by the scale factor"] = (self.position_side, self.block_side)
        for name, (size, divisor) in divided.items():
            if size % divisor:
                raise UnsupportedError(
                    argument=f"{where}: {name}", expected=f"a multiple of {divisor}", got=size, code="vision_size"
                )
        if self.image_side is not None and self.position_side not in _EXACT_SIDES:
            raise UnsupportedError(
                argument=f"{where}: patches in a row",
                expected="a number whose positions have no rounding error",
                got=self.position_side,
                code="vision_size",
            )

    def shapes(self) -> Shapes:
        """Return the shapes of the parameters by name."""
        squares = self.image_side is not None  # as a convolution, whose weights have the colors first
        frames = () if self.frames == 1 else (self.frames,)
        convolution = squares or frames
        kernel = (3, *frames, self.patch_side, self.patch_side) if convolution else (self.patch_columns,)
        shapes: Shapes = {
            "vision.patches.weight": (self.dim, *kernel),
            "vision.patches.bias": (self.dim,),
            "vision.positions.weight": (self.positions, self.dim),
        }
        for number in range(self.n_layers):
            layer = f"vision.layers.{number}"
            for part in ("wq", "wk", "wv", "wo"):
                shapes |= {f"{layer}.{part}.weight": (self.dim, self.dim), f"{layer}.{part}.bias": (self.dim,)}
            shapes |= {f"{layer}.w1.weight": (self.hidden_dim, self.dim), f"{layer}.w1.bias": (self.hidden_dim,)}
            shapes |= {f"{layer}.w2.weight": (self.dim, self.hidden_dim), f"{layer}.w2.bias": (self.dim,)}
            for norm in ("norm1", "norm2"):
                shapes |= {f"{layer}.{norm}.weight": (self.dim,), f"{layer}.{norm}.bias": (self.dim,)}
        shapes |= {"vision.norm.weight": (self.dim,), "vision.norm.bias": (self.dim,)}
        return shapes | self.connector.shapes(self.dim if self.connector.averages else self.dim * self.block)


def siglip_names(tower: str, connector: Mapping[str, str]) -> Mapping[str, str]:
    """Return the names of a SigLIP tower's tensors in a checkpoint, by those of VisionTower.shapes."""
    layer = f"{tower}.encoder.layers.{{}}"
    return {
        "vision.patches": f"{tower}.embeddings.patch_embedding",
        "vision.positions": f"{tower}.embeddings.position_embedding",
        "vision.layers.{}.wq": f"{layer}.self_attn.q_proj",
        "vision.layers.{}.wk": f"{layer}.self_attn.k_proj",
        "vision.layers.{}.wv": f"{layer}.self_attn.v_proj",
        "vision.layers.{}.wo": f"{layer}.self_attn.out_proj",
        "vision.layers.{}.w1": f"{layer}.mlp.fc1",
        "vision.layers.{}.w2": f"{layer}.mlp.fc2",
        "vision.layers.{}.norm1": f"{layer}.layer_norm1",
        "vision.layers.{}.norm2": f"{layer}.layer_norm2",
        "vision.norm": f"{tower}.post_layernorm",
        **connector,
    }


GGUF_SIGLIP_NAMES = {
    "vision.patches": "v.patch_embd",
    "vision.positions": "v.position_embd",
    "vision.layers.{}.wq": "v.blk.{}.attn_q",
    "vision.layers.{}.wk": "v.blk.{}.attn_k",
    "vision.layers.{}.wv": "v.blk.{}.attn_v",
    "vision.layers.{}.wo": "v.blk.{}.attn_out",
    "vision.layers.{}.w1": "v.blk.{}.ffn_up",
    "vision.layers.{}.w2": "v.blk.{}.ffn_down",
    "vision.layers.{}.norm1": "v.blk.{}.ln1",
    "vision.layers.{}.norm2": "v.blk.{}.ln2",
    "vision.norm": "v.post_ln",
}


@dataclass(frozen=True)
class GgufTower:
    """How a tower is read from a GGUF file of its own, whose keys begin with `clip.`."""

    projector: str  # the value of clip.projector_type
    image_token: str  # of the language models that it belongs to
    config: Callable[[Fields, Shapes], VisionTower]  # of the keys, and the shapes of the tensors
    processor: Callable[[Fields], dict[str, Any]]  # the keys -> preprocessor_config.json
    names: Mapping[str, str]  # in VisionTower.shapes -> in the file
    conversions: Conversions = field(default_factory=dict)


def gguf_sizes(vision: Fields, block_side: int | None = None) -> dict[str, Any]:
    """Return the fields of a VisionTower that have a key of their own. `block_side` is a default."""
    return {
        "patch_side": vision.integer("patch_size"),
        "block_side": vision.integer("projector.scale_factor", block_side),
        "dim": vision.integer("embedding_length"),
        "hidden_dim": vision.integer("feed_forward_length"),
        "n_heads": vision.integer("attention.head_count"),
        "n_layers": vision.layers("block_count"),
        "norm_eps": vision.number("attention.layer_norm_epsilon"),
    }


def gguf_pixel_steps(vision: Fields) -> dict[str, Any]:
    """Return how pixels are normalized, as in preprocessor_config.json."""
    return {name: [*vision.numbers(name)] for name in ("image_mean", "image_std")}


@dataclass(frozen=True)
class TowerKind:
    """How the towers of some models are read, and the language models beside them."""

    models: str  # examples, for documents
    model_types: tuple[str, ...]  # values of `model_type` in config.json
    classes: tuple[str, ...]  # values of `architectures` in config.json
    # The fields of the model, those of its vision_config, and preprocessor_config.json -> the tower.
    config: Callable[[Fields, Fields, Fields], VisionTower]
    names: Mapping[str, str]  # in VisionTower.shapes -> in the checkpoint; "{}" is the number of a layer
    tensors: str  # pattern of the names of all its tensors
    conversions: Conversions = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)  # parts of names in other files -> as in `names`
    unused_tensors: str = r"(?!)"  # pattern of those that have no effect
    # Fields of text_config that published files leave to the defaults of transformers.
    text_defaults: Mapping[str, Any] = field(default_factory=dict)
    # Fields of text_config with the values that have no effect; None: any value.
    text_unused: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    gguf: GgufTower | None = None  # None: no GGUF file of such a tower is read


@dataclass(frozen=True)
class Vision:
    """The encoder in a checkpoint."""

    tower: VisionTower
    weights: CheckpointWeights
    processor: Mapping[str, Any]  # preprocessor_config.json


# Fields of vision_config about training, other parts of the model, or the image processor, which has its own file.
_IGNORED = frozenset({
    "model_type", "max_image_size", "size", "tie_word_embeddings", "use_base_siglip", "initializer_range", "dtype",
    "torch_dtype", "transformers_version", "architectures", "_attn_implementation_autoset", "vision_use_head",
})  # fmt: skip
_RULES = {
    "attention_dropout": FieldRule((0, 0.0), "dropout"),
    "hidden_act": FieldRule(("gelu_pytorch_tanh",), "an activation other than gelu_pytorch_tanh"),
    "num_channels": FieldRule((3,), "images with other channels than three colors"),
}


def read_vision(
    model: Fields,
    kind: TowerKind,
    tensors: Mapping[str, StoredWeight],
    processor: Mapping[str, Any],
) -> Vision:
    """Return the encoder of a model with these fields of config.json."""
    where = model.where
    vision = model.part("vision_config")
    tower = kind.config(model, vision, Fields(f"{where}: the image processor", processor))
    vision.refuse_unread(_IGNORED.__contains__, _RULES)
    tower.check(where)
    sources = tower_sources(kind.names, tower.shapes(), kind.conversions)
    own = {_renamed(kind, name): tensor for name, tensor in tensors.items() if re.match(kind.tensors, name)}
    own = {name: tensor for name, tensor in own.items() if not re.match(kind.unused_tensors, name)}
    check_tensors(where, "image encoder", {name: tensor.shape for name, tensor in own.items()}, sources, ())
    return Vision(tower, CheckpointWeights(sources, own), processor)


def tower_sources(names: Mapping[str, str], shapes: Shapes, conversions: Conversions) -> dict[str, WeightSource]:
    """Return the source of each parameter. Those of one name are rows of one tensor, in their order."""
    sharing: dict[str, list[str]] = {}
    for name in shapes:
        sharing.setdefault(_stored_name(names, name), []).append(name)
    sources = {}
    for stored, together in sharing.items():
        first, total = 0, sum(shapes[name][0] for name in together)
        for name in together:
            source = WeightSource(stored, shapes[name])
            sources[name] = source if len(together) == 1 else replace(source, first_row=first, stored_rows=total)
            first += shapes[name][0]
    return sources | {name: replace(sources[name], **fields) for name, fields in conversions.items()}


def _renamed(kind: TowerKind, name: str) -> str:
    for part, ours in kind.renamed.items():
        name = name.replace(part, ours)
    return name


def _stored_name(names: Mapping[str, str], name: str) -> str:
    if name in names:
        return names[name]
    part, _, parameter = name.rpartition(".")
    number = re.findall(r"\d+", part.removeprefix("vision."))[:1] if "layers." in part else []
    return f"{names[re.sub(r'layers.[0-9]+', 'layers.{}', part)].format(*number)}.{parameter}"
