"""Idefics 3 and SmolVLM: squares of one size, and a linear layer over blocks of patches."""

from __future__ import annotations

from ..config import Fields
from ..vision_tower import Connector, TowerKind, VisionTower, siglip_names


def read_tower(model: Fields, vision: Fields, processor: Fields) -> VisionTower:
    image, patch, block = (
        vision.integer("image_size", 224),
        vision.integer("patch_size", 32),
        model.integer("scale_factor", 2),
    )
    side = image // patch
    output_dim = Fields(model.where, model.get("text_config", {})).integer("hidden_size")
    return VisionTower(
        patch_side=patch,
        dim=vision.integer("hidden_size", 1152),
        hidden_dim=vision.integer("intermediate_size", 3072),
        n_heads=vision.integer("num_attention_heads", 16),
        n_layers=vision.integer("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
        position_side=side,
        block_side=block,
        connector=Connector(output_dim),
        max_rows=side**2 // block**2,
        image_side=image,
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
)
