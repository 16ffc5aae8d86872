"""Export image classifiers and detectors of transformers as programs for `webpte.vision`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..builder.options import check_target
from ..checkpoints.checkpoint import check_source
from ..errors import FormatError, InputError, UnsupportedError
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..suppress_output import suppress_logs
from ..task_file import write_task
from .lowering import LOWERING_STAGES, Steps, lower_steps, require_executorch
from .pretrained import load_pretrained, read_config, require_transformers

if TYPE_CHECKING:
    import torch


def classifier_module(model: Any) -> torch.nn.Module:
    """Return a module from pixels (B, 3, H, W) to logits (B, classes)."""
    import torch

    if model.config.model_type == "vit":
        model.vit.embeddings = _padded_embeddings(model.vit.embeddings)

    class Classifying(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any) -> Any:
            return self.model(pixel_values=pixels).logits

    return Classifying().eval()


def _padded_embeddings(vit: Any) -> torch.nn.Module:
    """Return the same embeddings without `cls_token.expand`, for which the exporter fails with a dynamic batch."""
    import torch

    class PaddedEmbeddings(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patch_embeddings = vit.patch_embeddings  # the model reads its dtype by this name
            positions = vit.position_embeddings.detach().clone()  # (1, 1 + N, C)
            positions[:, :1] += vit.cls_token.detach()
            self.register_buffer("positions", positions)

        def forward(self, pixel_values: Any, **unused: Any) -> Any:
            patches = self.patch_embeddings(pixel_values)  # (B, N, C)
            return torch.nn.functional.pad(patches, (0, 0, 1, 0)) + self.positions  # (B, 1 + N, C)

    return PaddedEmbeddings()


def detector_module(model: Any, frame: tuple[int, int], masked: bool) -> tuple[torch.nn.Module, int]:
    """Return a module from pixels (1, 3, H, W) to logits (1, queries, classes + 1) and boxes (1, queries, 4), and the
    number of queries. With `masked`, the module also takes a mask (1, H, W) that is 0 for padding."""
    import torch

    class Detecting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any, mask: Any = None) -> Any:
            outputs = self.model(pixel_values=pixels, **({} if mask is None else {"pixel_mask": mask}))
            return outputs.logits, outputs.pred_boxes

    if masked:
        return Detecting().eval(), int(model.config.num_queries)
    _fix_positions(model, frame)
    return Detecting().eval(), int(model.config.num_detection_tokens)


def _fix_positions(yolos: Any, frame: tuple[int, int]) -> None:
    """Interpolate the position embeddings once instead of at every call: the image size is fixed."""
    import torch

    class Fixed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.register_buffer("value", value.detach().clone())

        def forward(self, *args: Any) -> Any:
            return self.value

    embeddings, encoder = yolos.vit.embeddings, yolos.vit.encoder
    embeddings.interpolation = Fixed(embeddings.interpolation(embeddings.position_embeddings, frame))
    if encoder.interpolation is not None:
        encoder.interpolation = Fixed(encoder.interpolation(frame))


PROCESSORS = (
    "ViTImageProcessor",
    "DeiTImageProcessor",
    "BitImageProcessor",
    "CLIPImageProcessor",
    "ConvNextImageProcessor",
    "MobileNetV2ImageProcessor",
    "DetrImageProcessor",
    "YolosImageProcessor",
)
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # PIL's 0 to 5
# About annotations and formats of arrays, without effect on the images that are read here. All are RGB.
_IGNORED = {"image_processor_type", "processor_class", "format", "do_convert_annotations", "do_convert_rgb",
             "do_reduce_labels", "data_format", "input_data_format", "default_to_square", "return_tensors", "device",
             "disable_grouping"}  # fmt: skip
_READ = {"do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize",
         "image_mean", "image_std", "do_pad", "pad_size", "crop_pct"}  # fmt: skip
MIN_UNCROPPED_PIXELS = 384  # side in pixels from which ConvNeXT's processor does not crop


def read_processor(folder: Path, image_size: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the preprocessing of a model, as fields of NAME.task.json.

    `transformers` reads preprocessor_config.json, with the defaults of each processor and the spellings of older
    versions. With `image_size`, every image is stretched to that height and width.
    """
    processor = _processor(folder)
    where = folder / "preprocessor_config.json"
    kind = str(processor.get("image_processor_type"))
    if kind not in PROCESSORS:
        raise UnsupportedError(
            items=["image_processor_type"],
            argument=f"{where}: image_processor_type",
            expected=f"one of {', '.join(PROCESSORS)}",
            got=kind,
            code="image_processor",
        )
    if unknown := [n for n, value in processor.items() if value is not None and n not in _READ | _IGNORED]:
        raise UnsupportedError(f"{where}: unknown field {', '.join(unknown)}", unknown, code="unsupported_field")
    size = {"height": image_size[0], "width": image_size[1]} if image_size else dict(processor.get("size") or {})
    resize = _resize(where, kind, processor, size)
    crop = _pair(where, "crop_size", processor["crop_size"]) if processor.get("do_center_crop") else None
    pad = (
        _pair(where, "pad_size", processor["pad_size"])
        if processor.get("do_pad") and processor.get("pad_size")
        else None
    )
    fields = {
        "resample": FILTERS[int(processor.get("resample", 2))],
        "crop": crop,
        "scale": float(processor["rescale_factor"]) if processor.get("do_rescale") else None,
        "mean": _colors(where, "image_mean", processor) if processor.get("do_normalize") else None,
        "std": _colors(where, "image_std", processor) if processor.get("do_normalize") else None,
        "pad": None if image_size else pad,
        **resize,
    }
    if fields["resize"] == "none" or (fields["resize"] != "exact" and not (fields["crop"] or fields["pad"])):
        raise InputError(
            argument=str(where),
            expected="a resize to one shape",
            got=size or "no resize",
            code="image_size",
            hint="Pass image_size, such as --image-size 480x640, to stretch all images to that size.",
        )
    return fields


def _processor(folder: Path) -> dict[str, Any]:
    if not (folder / "preprocessor_config.json").exists():
        raise FormatError(f"{folder} has no preprocessor_config.json", code="missing_file")
    with suppress_logs():
        from transformers import AutoImageProcessor

        try:
            processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True).to_dict()
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise FormatError(
                f"{folder / 'preprocessor_config.json'} cannot be read: {error}", code="unreadable"
            ) from error
    return dict(processor)


def _resize(where: Path, kind: str, processor: dict[str, Any], size: dict[str, Any]) -> dict[str, Any]:
    """Return `resize` and `size`, and `crop` if the resize crops."""
    if not processor.get("do_resize"):
        return {"resize": "none", "size": [1, 1]}
    match {name: int(side) for name, side in size.items() if side}:
        case {"height": height, "width": width, **rest} if not rest:
            return {"resize": "exact", "size": [height, width]}
        case {"shortest_edge": side, **rest} if kind == "ConvNextImageProcessor" and not rest:
            if side >= MIN_UNCROPPED_PIXELS:
                return {"resize": "exact", "size": [side, side]}
            larger = int(side / float(processor["crop_pct"]))
            return {"resize": "shortest", "size": [larger, larger], "crop": [side, side]}
        case {"shortest_edge": side, **rest} if not rest:
            return {"resize": "shortest", "size": [side, side]}
        # YOLOS crops both sides to multiples of 16, without padding.
        case {"shortest_edge": side, "longest_edge": longest, **rest} if kind != "YolosImageProcessor" and not rest:
            return {"resize": "fit", "size": [side, longest]}
        case {"shortest_edge": _, "longest_edge": _}:
            return {"resize": "none", "size": [1, 1]}
        case other:
            raise UnsupportedError(f"{where}: unsupported size {other}", ["size"], code="unsupported_field")


def _pair(where: Path, name: str, size: Any) -> list[int]:
    sides = [size.get(side) for side in ("height", "width")] if isinstance(size, dict) else [None]
    if not all(isinstance(side, int) and side > 0 for side in sides):
        raise UnsupportedError(
            items=[name], argument=f"{where}: {name}", expected="height and width", got=size, code="unsupported_field"
        )
    return [int(side) for side in sides if side]


def _colors(where: Path, name: str, processor: dict[str, Any]) -> list[float]:
    value = processor.get(name)
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise UnsupportedError(
            items=[name],
            argument=f"{where}: {name}",
            expected="three numbers, one per color",
            got=value,
            code="unsupported_field",
        )
    return [float(number) for number in value]


PathLike = str | os.PathLike[str]
CLASSIFIERS = ("vit", "resnet", "mobilenet_v2", "swin")
DETECTORS = {
    "yolos": False,
    "detr": True,
}  # model_type -> whether the model takes a mask of the pixels that are not padding
MAX_BATCH_IMAGES = 8
MAX_SIDE_PIXELS = 1 << 12


def export_classifier(
    checkpoint: PathLike,
    path: PathLike,
    *,
    max_batch: int = MAX_BATCH_IMAGES,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and `task.json` under its stem beside it, for `webpte.vision.Classifier.load`.

    Images have the size that the model's processor gives them. One call takes up to `max_batch` images.
    """
    if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
        raise InputError(
            argument="max_batch", expected="an integer of at least 1", got=repr(max_batch), code="max_batch"
        )
    folder, target = _check_paths(checkpoint, path)
    config = read_config(folder, CLASSIFIERS, "image classifiers")
    steps = Steps(cancellable(progress, cancel), ["read", *LOWERING_STAGES])
    steps.next()
    fields = read_processor(folder)
    model = load_pretrained("AutoModelForImageClassification", folder)
    labels = _labels(folder, model.config)
    several = config.get("problem_type") == "multi_label_classification" or len(labels) == 1
    frame = fields["crop"] or fields["size"]
    _lower(classifier_module(model), [(3, *frame)], target, max_batch, steps)
    write_task(target, "image classification", {"scores": "sigmoid" if several else "softmax", **fields,
                                                "labels": labels})  # fmt: skip
    return target


def export_detector(
    checkpoint: PathLike,
    path: PathLike,
    *,
    image_size: str | tuple[int, int] | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and `task.json` under its stem beside it, for `webpte.vision.Detector.load`.

    A program takes images of one size. If the model's processor gives images of different shapes, they are stretched
    to `image_size`, height and width, such as "480x640".
    """
    size = _image_size(image_size)
    folder, target = _check_paths(checkpoint, path)
    config = read_config(folder, DETECTORS, "detectors")
    masked = DETECTORS[config["model_type"]]
    steps = Steps(cancellable(progress, cancel), ["read", *LOWERING_STAGES])
    steps.next()
    fields = read_processor(folder, size)
    model = load_pretrained("AutoModelForObjectDetection", folder)
    labels = _labels(folder, model.config)
    frame = tuple(fields["pad"] or fields["crop"] or fields["size"])
    module, queries = detector_module(model, frame, masked)
    _lower(module, [(3, *frame), *([frame] if masked else [])], target, 1, steps)
    write_task(target, "object detection", {"queries": queries, "mask": masked, **fields, "labels": labels})
    return target


def _check_paths(checkpoint: PathLike, path: PathLike) -> tuple[Path, Path]:
    """Return the folder to read and the file to write, after checking both."""
    source, target = Path(checkpoint), Path(path)
    check_target(target)
    check_source(source)
    require_executorch()
    require_transformers()
    return source if source.is_dir() else source.parent, target


def _image_size(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", value) if isinstance(value, str) else None
    sides = [int(side) for side in match.groups()] if match else value
    height = width = 0
    if isinstance(sides, (list, tuple)) and len(sides) == 2 and all(type(side) is int for side in sides):
        height, width = sides
    if not 1 <= min(height, width) <= max(height, width) <= MAX_SIDE_PIXELS:
        raise InputError(
            argument="image_size",
            expected=f'height and width from 1 to {MAX_SIDE_PIXELS}, such as "480x640"',
            got=repr(value),
            code="image_size",
        )
    return height, width


def _labels(folder: Path, config: Any) -> list[str]:
    """Return the label of each class, in order."""
    named = {int(number): str(label) for number, label in config.id2label.items()}
    if sorted(named) != list(range(len(named))):
        raise FormatError(
            argument=f"{folder / 'config.json'}: id2label",
            expected=f"the classes 0 to {len(named) - 1}",
            got=f"{sorted(named)[:10]}",
            code="invalid_field",
        )
    return [named[number] for number in range(len(named))]


def _lower(module: torch.nn.Module, inputs: list[tuple[int, ...]], target: Path, most: int, steps: Steps) -> None:
    """Lower a module with inputs of these shapes, without batch: pixels, and optionally a mask of integers."""
    import torch

    count = min(2, most)  # torch.export specializes a size of one as a constant
    kinds = (torch.float32, torch.int64)
    example = tuple(torch.ones(count, *dims, dtype=kind) for dims, kind in zip(inputs, kinds, strict=False))
    batch = {0: torch.export.Dim("images", min=1, max=most)} if most > 1 else None
    lower_steps(
        module,
        example,
        (batch,) * len(example) if batch else None,
        steps,
        path=target,
        options={"require_dynamic_shapes": True} if batch else {},
        constant_methods=None,
        strict=False,
    )
