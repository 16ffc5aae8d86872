"""Define image encoders: a SigLIP tower, and the connector that turns its patches into rows of a decoder's input.

A kind of tower is a declaration in TOWERS: its model types, how its fields are read, and the names of its
tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError
from .config import FieldRule, Fields
from .shapes import Shapes
from .weights import CheckpointWeights, StoredWeight, WeightSource, check_tensors

# Patches in a row and a column for which transformers computes the position of a patch without a rounding error that
# moves it to another position.
_EXACT_SIDES = frozenset(range(1, 65)) - {19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62}


@dataclass(frozen=True)
class VisionTower:
    """An encoder of square images, and its connector. Sizes are in pixels, or elements of a patch's features."""

    image_side: int
    patch_side: int
    dim: int
    hidden_dim: int
    n_heads: int
    n_layers: int
    norm_eps: float
    block_side: int  # patches in a row and a column that become one row of the decoder's input
    output_dim: int

    @property
    def patches_side(self) -> int:
        return self.image_side // self.patch_side

    @property
    def patches(self) -> int:
        return self.patches_side**2

    @property
    def rows(self) -> int:
        """Return the rows of an image in the decoder's input."""
        return self.patches // self.block_side**2

    def check(self, where: str) -> None:
        """Raise UnsupportedError if sizes do not divide each other."""
        divided = {
            "the image side by the patch side": (self.image_side, self.patch_side),
            "the patches in a row by the scale factor": (self.patches_side, self.block_side),
            "the width by the heads": (self.dim, self.n_heads),
        }
        for name, (size, divisor) in divided.items():
            if size % divisor:
                raise UnsupportedError(
                    argument=f"{where}: {name}", expected=f"a multiple of {divisor}", got=size, code="vision_size"
                )
        if self.patches_side not in _EXACT_SIDES:
            raise UnsupportedError(
                argument=f"{where}: patches in a row",
                expected="a number whose positions have no rounding error",
                got=self.patches_side,
                code="vision_size",
            )

    def shapes(self) -> Shapes:
        """Return the shapes of the parameters by name."""
        shapes: Shapes = {
            "vision.patches.weight": (self.dim, 3, self.patch_side, self.patch_side),
            "vision.patches.bias": (self.dim,),
            "vision.positions.weight": (self.patches, self.dim),
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
        return shapes | {"vision.connector.weight": (self.output_dim, self.dim * self.block_side**2)}


@dataclass(frozen=True)
class TowerKind:
    """How the towers of some models are read."""

    model_types: tuple[str, ...]  # values of `model_type` in config.json
    config: Callable[[Fields, Fields], VisionTower]  # the fields of the model, and those of its vision_config
    names: Mapping[str, str]  # in VisionTower.shapes -> in the checkpoint; "{}" is the number of a layer
    tensors: str  # pattern of the names of all its tensors


@dataclass(frozen=True)
class Vision:
    """The encoder in a checkpoint."""

    tower: VisionTower
    weights: CheckpointWeights
    processor: Mapping[str, Any]  # preprocessor_config.json


def read_idefics3(model: Fields, vision: Fields) -> VisionTower:
    if vision.get("hidden_act", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise vision.invalid("hidden_act", vision.get("hidden_act"), "gelu_pytorch_tanh")
    if vision.integer("num_channels", 3) != 3:
        raise vision.invalid("num_channels", vision.get("num_channels"), "3")
    return VisionTower(
        image_side=vision.integer("image_size", 224),
        patch_side=vision.integer("patch_size", 32),
        dim=vision.integer("hidden_size", 1152),
        hidden_dim=vision.integer("intermediate_size", 3072),
        n_heads=vision.integer("num_attention_heads", 16),
        n_layers=vision.integer("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
        block_side=model.integer("scale_factor", 2),
        output_dim=Fields(model.where, model.get("text_config", {})).integer("hidden_size"),
    )


_LAYER = "model.vision_model.encoder.layers.{}"
TOWERS = (
    TowerKind(
        model_types=("idefics3", "smolvlm"),
        config=read_idefics3,
        names={
            "vision.patches": "model.vision_model.embeddings.patch_embedding",
            "vision.positions": "model.vision_model.embeddings.position_embedding",
            "vision.layers.{}.wq": f"{_LAYER}.self_attn.q_proj",
            "vision.layers.{}.wk": f"{_LAYER}.self_attn.k_proj",
            "vision.layers.{}.wv": f"{_LAYER}.self_attn.v_proj",
            "vision.layers.{}.wo": f"{_LAYER}.self_attn.out_proj",
            "vision.layers.{}.w1": f"{_LAYER}.mlp.fc1",
            "vision.layers.{}.w2": f"{_LAYER}.mlp.fc2",
            "vision.layers.{}.norm1": f"{_LAYER}.layer_norm1",
            "vision.layers.{}.norm2": f"{_LAYER}.layer_norm2",
            "vision.norm": "model.vision_model.post_layernorm",
            "vision.connector": "model.connector.modality_projection.proj",
        },
        tensors=r"model\.(vision_model|connector)\.",
    ),
)
# Fields of vision_config about training, other parts of the model, or the image processor, which has its own file.
_IGNORED = frozenset({
    "model_type", "max_image_size", "size", "tie_word_embeddings", "use_base_siglip", "initializer_range", "dtype",
    "torch_dtype", "transformers_version", "architectures", "_attn_implementation_autoset",
})  # fmt: skip
_RULES = {"attention_dropout": FieldRule((0, 0.0), "dropout")}


def tower_kind(config: Mapping[str, Any]) -> TowerKind | None:
    """Return the kind of the tower of a model by its config.json; None for a model that is read without."""
    return next((kind for kind in TOWERS if config.get("model_type") in kind.model_types), None)


def read_vision(
    where: str, config: Mapping[str, Any], tensors: Mapping[str, StoredWeight], processor: Mapping[str, Any]
) -> Vision | None:
    """Return the encoder of a model; None if the model has none that is read."""
    kind = tower_kind(config)
    if kind is None:
        return None
    vision = Fields(f"{where}: vision_config", config.get("vision_config") or {})
    tower = kind.config(Fields(where, config), vision)
    vision.refuse_unread(_IGNORED.__contains__, _RULES)
    tower.check(where)
    sources = {name: WeightSource(_stored_name(kind, name), shape) for name, shape in tower.shapes().items()}
    own = {name: tensor for name, tensor in tensors.items() if re.match(kind.tensors, name)}
    check_tensors(where, "image encoder", {name: tensor.shape for name, tensor in own.items()}, sources, ())
    return Vision(tower, CheckpointWeights(sources, own), processor)


def _stored_name(kind: TowerKind, name: str) -> str:
    part, _, parameter = name.rpartition(".")
    number = re.findall(r"\d+", part.removeprefix("vision."))[:1] if "layers." in part else []
    return f"{kind.names[re.sub(r'layers.[0-9]+', 'layers.{}', part)].format(*number)}.{parameter}"
