"""Networks that read images: detection, segmentation, depth, and pairs of image and text.

The structure and the ops are those of the published networks; widths, depths and images are small.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
import transformers as hf
from torch import nn, randn
from torch.export import Dim

from tests.support.models.transformers import Outputs, lively

from ..building import Case, case, program

STAGES: dict[str, Any] = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 2, 1]}


def plain(config: Any, make: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> nn.Module:
    """Return a model of `transformers` with attention in plain ops, as a function of tensors."""
    hf.logging.set_verbosity_error()
    config._attn_implementation = "eager"
    return Outputs(lively(make(config)), inputs, outputs)


def batches(model: nn.Module, *size: int, most: int = 3) -> Case:
    """Images (N, 3, H, W) with N of at most `most`: two calls at the bound, the others below."""
    steps = [(randn(n, 3, *size),) for n in (most, *range(most, 0, -1))]
    return case(model, [steps[0], steps[2], steps[1], *steps[3:]], {0: Dim("n", max=most)})


def sizes(model: nn.Module, unit: int, *grids: tuple[int, int]) -> Case:
    """Images (1, 3, H, W) whose sides are multiples of `unit`; the first grid is the bound, and is called twice."""
    first, traced, *others = [(randn(1, 3, unit * h, unit * w),) for h, w in grids]
    again = (randn(first[0].shape),)
    height, width = (unit * Dim(name, min=2, max=most) for name, most in zip(("h", "w"), grids[0], strict=True))
    return case(model, [first, traced, again, *others], {2: height, 3: width})


@program
def detr() -> Case:
    """DETR: a ResNet, then a transformer whose queries are boxes."""
    backbone = hf.ResNetConfig(**STAGES, embedding_size=12, out_features=["stage4"], layer_type="bottleneck")
    layers = {
        f"{part}_{name}": value
        for part, count in (("encoder", 1), ("decoder", 2))
        for name, value in (("layers", count), ("attention_heads", 3), ("ffn_dim", 64))
    }
    none: dict[str, Any] = {"use_timm_backbone": False, "use_pretrained_backbone": False}
    config = hf.DetrConfig(**none, **layers, backbone_config=backbone, d_model=48, num_queries=11, num_labels=7)
    return batches(plain(config, hf.DetrForObjectDetection, ("pixel_values",), ("logits", "pred_boxes")), 99, 131)


@program
def sam_encoder() -> Case:
    """SAM's image encoder: windows that do not divide the grid, relative positions, a neck of convolutions."""
    width: dict[str, Any] = {"hidden_size": 36, "output_channels": 20, "mlp_dim": 64, "num_attention_heads": 3}
    grid: dict[str, Any] = {"image_size": 88, "patch_size": 8, "window_size": 4, "global_attn_indexes": [1]}
    config = hf.SamVisionConfig(**width, **grid, num_hidden_layers=2)
    return batches(plain(config, hf.SamVisionModel, ("pixel_values",), ("last_hidden_state",)), 88, 88)


@program
def segformer() -> Case:
    """SegFormer: attention over keys of fewer places, and a decoder that joins four resolutions."""
    stages: dict[str, Any] = {"hidden_sizes": [16, 24, 48, 56], "depths": [1, 1, 1, 2]}
    config = hf.SegformerConfig(
        **stages, num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=36, num_labels=11, mlp_ratios=[2, 2, 2, 2]
    )
    model = plain(config, hf.SegformerForSemanticSegmentation, ("pixel_values",), ("logits",))
    return sizes(model, 32, (3, 5), (2, 3), (2, 5), (3, 2))


class Twice(nn.Sequential):
    """Two convolutions of 3 x 3, each with batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """Four levels down, and up by transposed convolutions with what was on the way down beside."""

    def __init__(self, *widths: int, classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip((3, *widths), widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(Twice(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for level in self.down[:-1]:
            kept.append(level(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for grow, level, beside in zip(self.grow, self.up, reversed(kept), strict=True):
            x = level(torch.cat([beside, grow(x)], 1))
        return self.head(x)


@program
def unet() -> Case:
    """U-Net: segmentation of images of any size."""
    return sizes(lively(UNet(7, 13, 20, 31, 40, classes=5)), 16, (5, 3), (3, 2), (2, 3), (4, 2))


class ConvAct(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> None:
        layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        super().__init__(layer, nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())


class C2f(nn.Module):
    """Half of the channels through bottlenecks, every stage kept for the last convolution."""

    def __init__(self, inputs: int, outputs: int, count: int = 1, skip: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = ConvAct(inputs, 2 * half), ConvAct((2 + count) * half, outputs)
        self.inner = nn.ModuleList(nn.Sequential(*(ConvAct(half, half, 3) for _ in range(2))) for _ in range(count))
        self.skip = skip

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for layer in self.inner:
            y = layer(parts[-1])
            parts.append(parts[-1] + y if self.skip else y)
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """SPPF: the same pool once, twice, three times."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = ConvAct(channels, channels // 2), ConvAct(2 * channels, channels)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """YOLOv8: a backbone, a neck up and down, and boxes as expectations over distances, at three strides."""

    bins = 8

    def __init__(self, a: int, b: int, c: int, classes: int, grids: list[tuple[int, int, int]]) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvAct(3, a // 2, 3, 2), ConvAct(a // 2, a, 3, 2), C2f(a, a))
        self.fine = nn.Sequential(ConvAct(a, a, 3, 2), C2f(a, a, 2))
        self.middle = nn.Sequential(ConvAct(a, b, 3, 2), C2f(b, b, 2))
        self.coarse = nn.Sequential(ConvAct(b, c, 3, 2), C2f(c, c), Pyramid(c))
        self.up = nn.ModuleList([C2f(b + c, b, skip=False), C2f(a + b, a, skip=False)])
        self.down = nn.ModuleList([C2f(a + b, b, skip=False), C2f(b + c, c, skip=False)])
        self.shrink = nn.ModuleList([ConvAct(a, a, 3, 2), ConvAct(b, b, 3, 2)])
        outputs = {"boxes": 4 * self.bins, "scores": classes}
        self.heads = nn.ModuleDict(
            {
                name: nn.ModuleList(nn.Sequential(ConvAct(n, n, 3), nn.Conv2d(n, count, 1)) for n in (a, b, c))
                for name, count in outputs.items()
            }
        )
        centers = [
            torch.stack(torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")[::-1]).flatten(1)
            for h, w, _ in grids
        ]
        self.register_buffer("centers", torch.cat(centers, 1), persistent=False)
        strides = [torch.full((h * w,), float(stride)) for h, w, stride in grids]
        self.register_buffer("strides", torch.cat(strides), persistent=False)

    def forward(self, x):
        fine = self.fine(self.stem(x))
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.up[0](torch.cat([F.interpolate(coarse, scale_factor=2.0), middle], 1))
        fine = self.up[1](torch.cat([F.interpolate(middle, scale_factor=2.0), fine], 1))
        middle = self.down[0](torch.cat([self.shrink[0](fine), middle], 1))
        coarse = self.down[1](torch.cat([self.shrink[1](middle), coarse], 1))
        predicted = {
            name: torch.cat([layer(y).flatten(2) for layer, y in zip(layers, (fine, middle, coarse), strict=True)], 2)
            for name, layers in self.heads.items()
        }
        distances = predicted["boxes"].unflatten(1, (4, self.bins)).softmax(2)
        bins = torch.arange(self.bins, dtype=torch.float32)
        near, far = (distances * bins[:, None]).sum(2).chunk(2, 1)
        low, high = self.centers - near, self.centers + far
        boxes = torch.cat([(low + high) / 2, high - low], 1) * self.strides
        return torch.cat([boxes, predicted["scores"].sigmoid()], 1)


@program
def yolo() -> Case:
    """YOLOv8: one tensor of boxes and scores for every place of three grids."""
    height, width = 96, 160
    grids = [(height // s, width // s, s) for s in (8, 16, 32)]
    model = Yolo(12, 18, 26, classes=7, grids=grids)
    kept = model.centers.clone(), model.strides.clone()
    lively(model)
    model.centers, model.strides = kept
    return batches(model, height, width)


class Unchanged(nn.Module):
    """Position embeddings as they are: at the image size of the config nothing has to be interpolated."""

    def forward(self, embeddings, size):
        return embeddings


@program
def yolos() -> Case:
    """YOLOS: a vision transformer whose last tokens are boxes."""

    def make(config: Any) -> nn.Module:
        model = hf.YolosForObjectDetection(config)
        model.vit.embeddings.interpolation = Unchanged()
        return model

    width: dict[str, Any] = {"hidden_size": 45, "num_hidden_layers": 3, "num_attention_heads": 3}
    image: dict[str, Any] = {"image_size": [56, 72], "patch_size": 8, "num_detection_tokens": 13}
    config = hf.YolosConfig(**width, **image, intermediate_size=96, num_labels=5, use_mid_position_embeddings=False)
    return batches(plain(config, make, ("pixel_values",), ("logits", "pred_boxes")), 56, 72)


@program
def depth_anything() -> Case:
    """Depth Anything: DINOv2, four of its layers reassembled at four resolutions and fused."""
    layers: dict[str, Any] = {"hidden_size": 40, "num_hidden_layers": 4, "num_attention_heads": 5}
    backbone = hf.Dinov2Config(
        **layers, image_size=70, patch_size=14, out_indices=[1, 2, 3, 4], reshape_hidden_states=False
    )
    neck: dict[str, Any] = {"reassemble_hidden_size": 40, "neck_hidden_sizes": [10, 14, 22, 22]}
    head: dict[str, Any] = {"fusion_hidden_size": 18, "head_hidden_size": 10, "patch_size": 14}
    config = hf.DepthAnythingConfig(backbone_config=backbone, **neck, **head)
    return batches(plain(config, hf.DepthAnythingForDepthEstimation, ("pixel_values",), ("predicted_depth",)), 70, 70)


@program
def clip() -> Case:
    """CLIP: both encoders, and how well each image fits each text."""
    text: dict[str, Any] = {"vocab_size": 97, "max_position_embeddings": 19, "eos_token_id": 2}
    layers: dict[str, Any] = {"num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 3}
    config = hf.CLIPConfig(
        text_config=text | layers | {"hidden_size": 48},
        vision_config=layers | {"hidden_size": 54, "image_size": 40, "patch_size": 8},
        projection_dim=38,
    )
    names = ("logits_per_image", "text_embeds", "image_embeds")
    model = plain(config, hf.CLIPModel, ("input_ids", "pixel_values"), names)
    steps = [(torch.randint(3, 97, (3, t)), randn(2, 3, 40, 40)) for t in (19, 11, 19, 7, 2)]
    return case(model, steps, {1: Dim("t", min=2, max=19)}, {})
