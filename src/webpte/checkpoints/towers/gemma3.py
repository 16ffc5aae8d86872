"""Gemma 3: SigLIP over one square, whose patches are averaged. In the decoder, the rows of an image see each other."""

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

_BLOCK_SIDE = 4  # of GGUF files that do not state it


def read_tower(model: Fields, vision: Fields, processor: Fields) -> VisionTower:
    image, patch = vision.integer("image_size", 224), vision.integer("patch_size", 16)
    rows, count = model.integer("mm_tokens_per_image", 256), image // patch
    side = math.isqrt(rows)
    if side**2 != rows or not count or count % side:
        expected = f"the square of a divisor of {count}, the patches in a row"
        raise model.invalid("mm_tokens_per_image", rows, expected)
    return _tower(
        image,
        model.part("text_config").integer("hidden_size", 2304),
        patch_side=patch,
        block_side=count // side,
        dim=vision.integer("hidden_size", 768),
        hidden_dim=vision.integer("intermediate_size", 3072),
        n_heads=vision.integer("num_attention_heads", 12),
        n_layers=vision.layers("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
    )


def read_gguf(keys: Fields, shapes: Shapes) -> VisionTower:
    vision = keys.with_prefix("clip.vision.")
    sizes = gguf_sizes(vision, _BLOCK_SIDE)
    return _tower(vision.integer("image_size"), vision.integer("projection_dim"), **sizes)


def gguf_processor(keys: Fields) -> dict[str, Any]:
    vision = keys.with_prefix("clip.vision.")
    side = vision.integer("image_size")
    size = {"height": side, "width": side}
    return {"image_processor_type": "Gemma3ImageProcessor", "size": size, **gguf_pixel_steps(vision)}


def _tower(image: int, output_dim: int, patch_side: int, block_side: int, norm_eps: float, **sizes: Any) -> VisionTower:
    side = image // patch_side
    return VisionTower(
        patch_side=patch_side,
        block_side=block_side,
        norm_eps=norm_eps,
        position_side=side,
        connector=Connector(output_dim, norm_eps=norm_eps, averages=True),
        max_rows=side**2 // block_side**2,
        image_side=image,
        bidirectional=True,
        **sizes,
    )


_PROJECTION, _NORM = "vision.connector.weight", "vision.connector.norm"
TOWER = TowerKind(
    models="Gemma 3",
    model_types=("gemma3",),
    classes=("Gemma3ForConditionalGeneration",),
    config=read_tower,
    names=siglip_names(
        "vision_tower",
        {
            _PROJECTION: "multi_modal_projector.mm_input_projection_weight",
            _NORM: "multi_modal_projector.mm_soft_emb_norm",
        },
    ),
    tensors=r"(model\.)?(vision_tower|multi_modal_projector)\.",
    conversions={_PROJECTION: {"transposed": True}, f"{_NORM}.weight": {"offset": 1.0}},
    renamed={
        "model.vision_tower.": "vision_tower.",
        "model.multi_modal_projector.": "multi_modal_projector.",
        "vision_tower.vision_model.": "vision_tower.",
    },
    unused_tensors=r"vision_tower\.head\.",  # pools patches, which the language model does not
    text_defaults={
        "model_type": "gemma3_text",
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 131072,
    },
    gguf=GgufTower(
        projector="gemma3",
        image_token="<image_soft_token>",
        config=read_gguf,
        processor=gguf_processor,
        names={**GGUF_SIGLIP_NAMES, "vision.connector": "mm.input_projection", _NORM: "mm.soft_emb_norm"},
        conversions={_PROJECTION: {"transposed": True}},  # the norm is stored with its offset
    ),
)
