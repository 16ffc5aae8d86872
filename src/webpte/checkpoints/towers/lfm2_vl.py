"""LFM2-VL: SigLIP 2 over images of any size (NaFlex), and two linear layers over blocks of patches."""

from __future__ import annotations

import math
from typing import Any

from ..config import Fields
from ..shapes import Shapes
from ..vision_tower import (
    GGUF_SIGLIP_NAMES,
    Connector,
    GgufTower,
    TowerKind,
    VisionTower,
    gguf_pixel_steps,
    gguf_sizes,
    siglip_names,
)

_NORM_EPS = 1e-5  # of the connector
# Of the published image processors, and the defaults of transformers. GGUF files do not state them.
_MAX_BLOCKS, _TILE_SIDE = 256, 512


def read_tower(model: Fields, vision: Fields, processor: Fields) -> VisionTower:
    positions, block, patch = (
        vision.integer("num_patches", 256),
        model.integer("downsample_factor", 2),
        vision.integer("patch_size", 16),
    )
    side = math.isqrt(positions)
    if side**2 != positions:
        raise vision.invalid("num_patches", positions, "a square number")
    if model.get("projector_hidden_act", "gelu") != "gelu":
        raise model.invalid("projector_hidden_act", model.get("projector_hidden_act"), "gelu")
    tile = processor.integer("tile_size", _TILE_SIDE) // (patch * block)
    split = processor.boolean("do_image_splitting", True)
    return VisionTower(
        patch_side=patch,
        dim=vision.integer("hidden_size", 768),
        hidden_dim=vision.integer("intermediate_size", 3072),
        n_heads=vision.integer("num_attention_heads", 12),
        n_layers=vision.layers("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
        position_side=side,
        block_side=block,
        connector=Connector(
            model.part("text_config").integer("hidden_size"),
            hidden_dim=model.integer("projector_hidden_size", 2560),
            bias=model.boolean("projector_bias", True),
            norm_eps=_NORM_EPS if model.boolean("projector_use_layernorm", True) else None,
        ),
        max_rows=max(processor.integer("max_image_tokens", _MAX_BLOCKS), tile**2 if split else 0),
    )


def read_gguf(keys: Fields, shapes: Shapes) -> VisionTower:
    """Return the tower. The table of positions and the connector are as large as their tensors."""
    vision = keys.with_prefix("clip.vision.")
    vision.get("image_size")  # images have any size; the key is that of a size in training
    sizes, projector = gguf_sizes(vision), shapes.get("mm.1.weight", (1,))
    return VisionTower(
        position_side=math.isqrt(shapes.get("v.position_embd.weight", (1,))[0]),
        connector=Connector(
            vision.integer("projection_dim"),
            hidden_dim=projector[0],
            bias="mm.1.bias" in shapes,
            norm_eps=_NORM_EPS if "mm.input_norm.weight" in shapes else None,
        ),
        max_rows=max(_MAX_BLOCKS, (_TILE_SIDE // (sizes["patch_side"] * sizes["block_side"])) ** 2),
        **sizes,
    )


def gguf_processor(keys: Fields) -> dict[str, Any]:
    vision = keys.with_prefix("clip.vision.")
    return {
        "image_processor_type": "Lfm2VlImageProcessorFast",
        "encoder_patch_size": vision.integer("patch_size"),
        "downsample_factor": vision.integer("projector.scale_factor"),
        "max_image_tokens": _MAX_BLOCKS,
        "tile_size": _TILE_SIDE,
        **gguf_pixel_steps(vision),
    }


_PROJECTOR = "model.multi_modal_projector"
TOWER = TowerKind(
    models="LFM2-VL",
    model_types=("lfm2_vl",),
    classes=("Lfm2VlForConditionalGeneration",),
    config=read_tower,
    names=siglip_names(
        "model.vision_tower",
        {
            "vision.connector.norm": f"{_PROJECTOR}.layer_norm",
            "vision.connector.w1": f"{_PROJECTOR}.linear_1",
            "vision.connector.w2": f"{_PROJECTOR}.linear_2",
        },
    ),
    tensors=r"model\.(vision_tower|multi_modal_projector)\.",
    renamed={"vision_tower.vision_model.": "vision_tower."},
    unused_tensors=r"model\.vision_tower\.head\.",  # pools patches, which the language model does not
    text_defaults={"model_type": "lfm2"},
    gguf=GgufTower(
        projector="lfm2",
        image_token="<image>",
        config=read_gguf,
        processor=gguf_processor,
        names={
            **GGUF_SIGLIP_NAMES,
            "vision.connector.norm": "mm.input_norm",
            "vision.connector.w1": "mm.1",
            "vision.connector.w2": "mm.2",
        },
    ),
)
