"""Vision architectures of `transformers`, tiny and with seeded random weights.

Where the exporter allows it, convolutional ones take images of any size, and those with position embeddings of a fixed
grid any batch.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn
from torch.export import Dim

from ..export.lowering import Inputs, Model
from .transformers import export_model

SIDE = 32  # of an image whose size is fixed
BATCHES = (5, 3, 1)  # the bound first
SIZES = ((96, 96), (64, 96), (32, 64), (96, 32))  # of images of any size, multiples of 32; the bound first


def build(name: str, transformers: str) -> Model:
    """The model called `name`; `transformers` is the version it comes from, which makes it part of the cache key."""
    return globals()[name]()


def pixels(config: Any, make: Any, outputs: tuple[str, ...], steps: list[Inputs], dims: Any) -> Model:
    return export_model(make, config, ("pixel_values",), outputs, steps, steps[1], dims)


def any_size(config: Any, make: Any, outputs: tuple[str, ...]) -> Model:
    """Images (1, 3, H <= 96, W <= 96), both multiples of 32."""
    steps: list[Inputs] = [(torch.randn(1, 3, h, w),) for h, w in SIZES]
    height, width = (32 * Dim(name, min=1, max=3) for name in ("rows", "columns"))
    return pixels(config, make, outputs, steps, ({2: height, 3: width},))


def any_batch(config: Any, make: Any, outputs: tuple[str, ...]) -> Model:
    """Images (B <= 5, 3, 32, 32)."""
    steps: list[Inputs] = [(torch.randn(n, 3, SIDE, SIDE),) for n in BATCHES]
    return pixels(config, make, outputs, steps, ({0: Dim("batch", max=BATCHES[0])},))


def static(config: Any, make: Any, outputs: tuple[str, ...]) -> Model:
    """Images (2, 3, 32, 32), exactly."""
    steps: list[Inputs] = [(torch.randn(2, 3, SIDE, SIDE),) for _ in range(2)]
    return pixels(config, make, outputs, steps, None)


# ---------------------------------------------------------------- transformers

TRANSFORMER: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "image_size": SIDE,
    "patch_size": 8,
}


def vit() -> Model:
    return static(hf.ViTConfig(**TRANSFORMER, num_labels=7), hf.ViTForImageClassification, ("logits",))


def clip_vision() -> Model:
    config = hf.CLIPVisionConfig(**TRANSFORMER, projection_dim=32)
    return static(config, hf.CLIPVisionModelWithProjection, ("image_embeds",))


def swin() -> Model:
    """Attention in windows, which every second layer shifts."""
    stages: dict[str, Any] = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4]}
    config = hf.SwinConfig(**stages, image_size=SIDE, patch_size=2, window_size=4, num_labels=7)
    return any_batch(config, hf.SwinForImageClassification, ("logits",))


class Unchanged(nn.Module):
    """Position embeddings as they are: at the image size of the config nothing has to be interpolated."""

    def forward(self, embeddings, size):
        return embeddings


def yolos() -> Model:
    def make(config: Any) -> nn.Module:
        model = hf.YolosForObjectDetection(config)
        model.vit.embeddings.interpolation = Unchanged()
        return model

    sizes = TRANSFORMER | {"image_size": [SIDE, SIDE]}
    config = hf.YolosConfig(**sizes, num_detection_tokens=6, num_labels=5, use_mid_position_embeddings=False)
    return static(config, make, ("logits", "pred_boxes"))


def dpt() -> Model:
    """Depth from the features of four layers of a transformer."""
    layers = TRANSFORMER | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}
    config = hf.DPTConfig(**layers, neck_hidden_sizes=[16, 16, 24, 32], fusion_hidden_size=16)
    return static(config, hf.DPTForDepthEstimation, ("predicted_depth",))


PYRAMID: dict[str, Any] = {
    "hidden_sizes": [16, 24, 32, 48],
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 2, 4],
    "decoder_hidden_size": 32,
}


def segformer() -> Model:
    config = hf.SegformerConfig(**PYRAMID, num_labels=5)
    return any_size(config, hf.SegformerForSemanticSegmentation, ("logits",))


def glpn() -> Model:
    return any_size(hf.GLPNConfig(**PYRAMID), hf.GLPNForDepthEstimation, ("predicted_depth",))


# ---------------------------------------------------------------- convolutions

STAGES: dict[str, Any] = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1], "num_labels": 7}


def convnext() -> Model:
    return any_size(hf.ConvNextConfig(**STAGES), hf.ConvNextForImageClassification, ("logits",))


def resnet() -> Model:
    return any_size(hf.ResNetConfig(**STAGES, embedding_size=16), hf.ResNetForImageClassification, ("logits",))


def mobilenet_v2() -> Model:
    config = hf.MobileNetV2Config(depth_multiplier=0.25, min_depth=8, tf_padding=False, num_labels=7)
    return any_size(config, hf.MobileNetV2ForImageClassification, ("logits",))
