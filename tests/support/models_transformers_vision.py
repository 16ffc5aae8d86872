"""Vision architectures of `transformers`, tiny and with seeded random weights.

Convolutional ones take images of any size; those with position embeddings of a fixed grid take any batch instead.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn
from torch.export import Dim

from .export_lowering import Model, forward
from .models_transformers import Outputs, lively

SIDE = 32  # of a fixed image
BATCHES = (5, 3, 1)
SIZES = ((64, 96), (32, 64), (96, 32))  # of images of any size, multiples of 32


def fixed(config: Any, make: Any, outputs: tuple[str, ...], side: int = SIDE, **more: Any) -> Model:
    """Images (B <= 5, 3, side, side)."""
    config._attn_implementation = "eager"
    module = Outputs(lively(make(config, **more)), ("pixel_values",), outputs)
    steps = [(torch.randn(n, 3, side, side),) for n in BATCHES]
    return forward(module, steps[1], [steps], dynamic_shapes=({0: Dim("batch", max=BATCHES[0])},), strict=False)


def static(config: Any, make: Any, outputs: tuple[str, ...], side: int = SIDE, **more: Any) -> Model:
    """Images (2, 3, side, side), exactly."""
    config._attn_implementation = "eager"
    module = Outputs(lively(make(config, **more)), ("pixel_values",), outputs)
    steps = [(torch.randn(2, 3, side, side),) for _ in range(2)]
    return forward(module, steps[0], [steps], strict=False)


def free(config: Any, make: Any, outputs: tuple[str, ...], **more: Any) -> Model:
    """Images (1, 3, H <= 96, W <= 96), both multiples of 32."""
    config._attn_implementation = "eager"
    module = Outputs(lively(make(config, **more)), ("pixel_values",), outputs)
    steps = [(torch.randn(1, 3, h, w),) for h, w in SIZES]
    height, width = (32 * Dim(name, min=1, max=3) for name in ("rows", "columns"))
    return forward(module, steps[0], [steps], dynamic_shapes=({2: height, 3: width},), strict=False)


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


def deit() -> Model:
    return fixed(hf.DeiTConfig(**TRANSFORMER, num_labels=7), hf.DeiTForImageClassification, ("logits",))


def beit() -> Model:
    return fixed(
        hf.BeitConfig(**TRANSFORMER, num_labels=7, use_relative_position_bias=True),
        hf.BeitForImageClassification,
        ("logits",),
    )


def dinov2() -> Model:
    return fixed(hf.Dinov2Config(**TRANSFORMER), hf.Dinov2Model, ("last_hidden_state",))


def clip_vision() -> Model:
    config = hf.CLIPVisionConfig(**TRANSFORMER, projection_dim=32)
    return static(config, hf.CLIPVisionModelWithProjection, ("image_embeds",))


def siglip_vision() -> Model:
    return fixed(hf.SiglipVisionConfig(**TRANSFORMER), hf.SiglipVisionModel, ("last_hidden_state", "pooler_output"))


def swin() -> Model:
    config = hf.SwinConfig(
        image_size=SIDE, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=7
    )
    return fixed(config, hf.SwinForImageClassification, ("logits",))


def convnext() -> Model:
    config = hf.ConvNextConfig(hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1], num_labels=7)
    return free(config, hf.ConvNextForImageClassification, ("logits",))


def resnet() -> Model:
    config = hf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1], num_labels=7)
    return free(config, hf.ResNetForImageClassification, ("logits",))


def mobilenet_v2() -> Model:
    config = hf.MobileNetV2Config(depth_multiplier=0.25, min_depth=8, tf_padding=False, num_labels=7)
    return free(config, hf.MobileNetV2ForImageClassification, ("logits",))


def mobilenet_v1() -> Model:
    config = hf.MobileNetV1Config(depth_multiplier=0.125, min_depth=8, tf_padding=False, num_labels=7)
    return free(config, hf.MobileNetV1ForImageClassification, ("logits",))


def efficientnet() -> Model:
    config = hf.EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=40, num_labels=7)
    return free(config, hf.EfficientNetForImageClassification, ("logits",))


def regnet() -> Model:
    config = hf.RegNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 1, 1, 1],
        groups_width=8,
        layer_type="y",
        num_labels=7,
    )
    return free(config, hf.RegNetForImageClassification, ("logits",))


def poolformer() -> Model:
    config = hf.PoolFormerConfig(hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1], num_labels=7)
    return free(config, hf.PoolFormerForImageClassification, ("logits",))


def mobilevit() -> Model:
    config = hf.MobileViTConfig(
        image_size=64,
        hidden_sizes=[24, 32, 40],
        neck_hidden_sizes=[8, 16, 24, 32, 32, 40, 48],
        num_attention_heads=2,
        num_labels=7,
    )
    return fixed(config, hf.MobileViTForImageClassification, ("logits",), side=64)


def segformer() -> Model:
    config = hf.SegformerConfig(
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
        num_labels=5,
    )
    return free(config, hf.SegformerForSemanticSegmentation, ("logits",))


def segformer_fixed() -> Model:
    config = hf.SegformerConfig(
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
        num_labels=5,
    )
    return fixed(config, hf.SegformerForSemanticSegmentation, ("logits",), side=64)


def glpn() -> Model:
    config = hf.GLPNConfig(
        hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=32
    )
    return free(config, hf.GLPNForDepthEstimation, ("predicted_depth",))


def glpn_fixed() -> Model:
    config = hf.GLPNConfig(
        hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=32
    )
    return fixed(config, hf.GLPNForDepthEstimation, ("predicted_depth",), side=64)


def dpt() -> Model:
    config = hf.DPTConfig(
        **TRANSFORMER | {"num_hidden_layers": 4},
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[16, 16, 24, 32],
        fusion_hidden_size=16,
    )
    return static(config, hf.DPTForDepthEstimation, ("predicted_depth",))


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


def detr() -> Model:
    backbone = hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = hf.DetrConfig(
        use_timm_backbone=False,
        backbone_config=backbone,
        use_pretrained_backbone=False,
        backbone=None,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_queries=6,
    )
    return static(config, hf.DetrForObjectDetection, ("logits", "pred_boxes"), side=64)


def upernet() -> Model:
    backbone = hf.ConvNextConfig(
        hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1], out_features=["stage1", "stage2", "stage3", "stage4"]
    )
    config = hf.UperNetConfig(
        backbone_config=backbone,
        hidden_size=16,
        auxiliary_in_channels=32,
        auxiliary_channels=16,
        num_labels=5,
        backbone=None,
    )
    return fixed(config, hf.UperNetForSemanticSegmentation, ("logits",), side=64)


def vitmatte() -> Model:
    raise NotImplementedError


def build(name: str, transformers: str) -> Model:
    """The model called `name`; `transformers` is the version it comes from, which makes it part of the cache key."""
    return globals()[name]()
