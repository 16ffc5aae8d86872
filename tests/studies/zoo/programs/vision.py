"""Vision architectures of `transformers`, tiny, with random weights and images of a fixed size.

Those of tests/support/models/transformers_vision.py are run by tests/contract/test_architectures.py.
"""

from typing import Any

import transformers as hf
from torch import randn

from tests.support.models.transformers import Outputs, lively

from ..building import Case, case, program


def images(config: Any, make: Any, *outputs: str, side: int = 32, batch: int = 2) -> Case:
    hf.logging.set_verbosity_error()
    model = Outputs(lively(make(config)), ("pixel_values",), outputs or ("last_hidden_state",))
    return case(model, [(randn(batch, 3, side, side),) for _ in range(4)])


PATCHES: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "image_size": 32,
    "patch_size": 8,
}
LAYERS = {k: v for k, v in PATCHES.items() if k != "intermediate_size"}


@program
def deit() -> Case:
    return images(hf.DeiTConfig(**PATCHES, num_labels=5), hf.DeiTForImageClassification, "logits")


@program
def siglip_vision() -> Case:
    return images(hf.SiglipVisionConfig(**PATCHES), hf.SiglipVisionModel, "last_hidden_state", "pooler_output")


@program
def dinov2() -> Case:
    return images(hf.Dinov2Config(**LAYERS, mlp_ratio=2), hf.Dinov2Model)


@program
def beit() -> Case:
    """Relative positions of patches."""
    config = hf.BeitConfig(**PATCHES, num_labels=5, use_relative_position_bias=True)
    return images(config, hf.BeitForImageClassification, "logits")


@program
def ijepa() -> Case:
    return images(hf.IJepaConfig(**PATCHES), hf.IJepaModel)


@program
def efficientnet() -> Case:
    config = hf.EfficientNetConfig(image_size=32, hidden_dim=320, width_coefficient=0.25, depth_coefficient=0.3)
    return images(config, hf.EfficientNetModel)


@program
def mobilevit() -> Case:
    necks = [8, 16, 24, 32, 40, 48, 56]
    sizes: dict[str, Any] = {"hidden_sizes": [24, 32, 40], "neck_hidden_sizes": necks, "num_attention_heads": 2}
    return images(hf.MobileViTConfig(image_size=64, **sizes), hf.MobileViTModel, side=64)


@program
def regnet() -> Case:
    stages: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    config = hf.RegNetConfig(**stages, groups_width=8)
    return images(config, hf.RegNetModel, "last_hidden_state", "pooler_output")


@program
def pvt() -> Case:
    stages: dict[str, Any] = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}
    return images(hf.PvtConfig(image_size=64, **stages, num_attention_heads=[1, 1, 2, 2]), hf.PvtModel, side=64)


@program
def depth_anything() -> Case:
    layers: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2}
    backbone = hf.Dinov2Config(
        **layers, image_size=56, patch_size=14, out_indices=[1, 2, 3, 4], reshape_hidden_states=False
    )
    neck: dict[str, Any] = {"reassemble_hidden_size": 24, "neck_hidden_sizes": [8, 12, 16, 16]}
    head: dict[str, Any] = {"fusion_hidden_size": 16, "head_hidden_size": 8, "patch_size": 14}
    config = hf.DepthAnythingConfig(backbone_config=backbone, **neck, **head)
    return images(config, hf.DepthAnythingForDepthEstimation, "predicted_depth", side=56)


@program
def detr() -> Case:
    stages: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1]}
    backbone = hf.ResNetConfig(**stages, out_features=["stage4"], layer_type="basic")
    sizes = {
        f"{part}_{what}": size
        for part in ("encoder", "decoder")
        for what, size in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))
    }
    config = hf.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone_config=backbone,
        d_model=32,
        num_queries=7,
        **sizes,
    )
    return images(config, hf.DetrForObjectDetection, "logits", "pred_boxes", side=64, batch=1)


@program
def sam_vision() -> Case:
    """Windows of three patches, with relative positions."""
    sizes: dict[str, Any] = {"hidden_size": 24, "output_channels": 16, "num_hidden_layers": 2, "mlp_dim": 32}
    windows: dict[str, Any] = {"window_size": 3, "global_attn_indexes": [1], "image_size": 64, "patch_size": 8}
    config = hf.SamVisionConfig(**sizes, **windows, num_attention_heads=2)
    return images(config, hf.SamVisionModel, side=64, batch=1)


@program
def poolformer() -> Case:
    """Pooling instead of attention."""
    stages: dict[str, Any] = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    return images(hf.PoolFormerConfig(**stages), hf.PoolFormerModel, side=64)


@program
def convnextv2() -> Case:
    stages: dict[str, Any] = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    return images(hf.ConvNextV2Config(**stages), hf.ConvNextV2Model, side=64)


@program
def mobilenet_v1() -> Case:
    config = hf.MobileNetV1Config(depth_multiplier=0.25, min_depth=8, tf_padding=False)
    return images(config, hf.MobileNetV1Model, side=64)
