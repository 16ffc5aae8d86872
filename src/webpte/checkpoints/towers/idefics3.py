"""Idefics 3 and SmolVLM: squares of one size, and a linear layer over blocks of patches."""

from __future__ import annotations

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

_LANCZOS = 1  # the number of the filter that all published image processors name


def read_tower(model: Fields, vision: Fields, processor: Fields) -> VisionTower:
    return _tower(
        vision.integer("image_size", 224),
        model.part("text_config").integer("hidden_size"),
        patch_side=vision.integer("patch_size", 32),
        block_side=model.integer("scale_factor", 2),
        dim=vision.integer("hidden_size", 1152),
        hidden_dim=vision.integer("intermediate_size", 3072),
        n_heads=vision.integer("num_attention_heads", 16),
        n_layers=vision.layers("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
    )


def read_gguf(keys: Fields, shapes: Shapes) -> VisionTower:
    vision = keys.with_prefix("clip.vision.")
    return _tower(vision.integer("image_size"), vision.integer("projection_dim"), **gguf_sizes(vision))


def gguf_processor(keys: Fields) -> dict[str, Any]:
    """Return the image processor of the keys. Older files have no size of the whole image: it is one tile."""
    vision = keys.with_prefix("clip.vision.")
    side = vision.integer("image_size")
    return {
        "image_processor_type": "Idefics3ImageProcessor",
        "size": {"longest_edge": vision.integer("preproc_image_size", side)},
        "max_image_size": {"longest_edge": side},
        "resample": _LANCZOS,
        **gguf_pixel_steps(vision),
    }


def _tower(image: int, output_dim: int, patch_side: int, block_side: int, **sizes: Any) -> VisionTower:
    side = image // patch_side
    return VisionTower(
        patch_side=patch_side,
        block_side=block_side,
        position_side=side,
        connector=Connector(output_dim),
        max_rows=side**2 // block_side**2,
        image_side=image,
        **sizes,
    )


TOWER = TowerKind(
    models="Idefics 3, SmolVLM",
    model_types=("idefics3", "smolvlm"),
    classes=("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
    config=read_tower,
    names=siglip_names("model.vision_model", {"vision.connector": "model.connector.modality_projection.proj"}),
    tensors=r"model\.(vision_model|connector)\.",
    text_defaults={"model_type": "llama", "rms_norm_eps": 1e-5},
    text_unused={
        "architectures": None,
        "neftune_noise_alpha": None,
        "perceiver_config": None,
        "pixel_shuffle_factor": None,
        "qk_layer_norms": (False,),
        "use_resampler": (False,),
    },
    gguf=GgufTower(
        projector="idefics3",
        image_token="<image>",
        config=read_gguf,
        processor=gguf_processor,
        names={**GGUF_SIGLIP_NAMES, "vision.connector": "mm.model.fc"},
    ),
)
