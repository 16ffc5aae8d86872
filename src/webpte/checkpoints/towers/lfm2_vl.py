"""LFM2-VL: SigLIP 2 over images of any size (NaFlex), and two linear layers over blocks of patches."""

from __future__ import annotations

import math

from ..config import Fields
from ..vision_tower import Connector, TowerKind, VisionTower, siglip_names


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
    tile = processor.integer("tile_size", 512) // (patch * block)
    split = processor.boolean("do_image_splitting", True)
    return VisionTower(
        patch_side=patch,
        dim=vision.integer("hidden_size", 768),
        hidden_dim=vision.integer("intermediate_size", 3072),
        n_heads=vision.integer("num_attention_heads", 12),
        n_layers=vision.integer("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
        position_side=side,
        block_side=block,
        connector=Connector(
            Fields(model.where, model.get("text_config", {})).integer("hidden_size"),
            hidden_dim=model.integer("projector_hidden_size", 2560),
            bias=model.boolean("projector_bias", True),
            norm_eps=1e-5 if model.boolean("projector_use_layernorm", True) else None,
        ),
        max_rows=max(processor.integer("max_image_tokens", 256), tile**2 if split else 0),
    )


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
)
