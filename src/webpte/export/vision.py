"""From classifiers and detectors, as transformers saves them, to programs for `webpte.vision`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, InputError
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..task_file import write_task
from .checkpoint import check_source
from .lowering import LOWERING, Steps, lower_steps, require_executorch
from .options import check_target
from .pretrained import load_pretrained, read_config, require_transformers
from .processors import read_processor
from .vision_modules import classifying, detecting

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]
CLASSIFIERS = ("vit", "resnet", "mobilenet_v2", "swin")
DETECTORS = {"yolos": False, "detr": True}  # whether they look at a mask of what is picture and what was padded
MOST_BATCH = 8
LONGEST_SIDE = 1 << 12


def export_classifier(
    checkpoint: PathLike,
    path: PathLike,
    *,
    max_batch: int = MOST_BATCH,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and `task.json` under its stem beside it, for `webpte.vision.Classifier.load`.

    Pictures have the size that the model's processor makes them; one call takes up to `max_batch`.
    """
    if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
        raise InputError(f"max_batch is a whole number, at least 1, not {max_batch!r}")
    folder, target = _checked(checkpoint, path)
    config = read_config(folder, CLASSIFIERS, "classifiers of pictures")
    steps = Steps(cancellable(progress, cancel), ["read", *LOWERING])
    steps.next()
    fields = read_processor(folder)
    model = load_pretrained("AutoModelForImageClassification", folder)
    labels = _labels(folder, model.config)
    several = config.get("problem_type") == "multi_label_classification" or len(labels) == 1
    frame = fields["crop"] or fields["size"]
    _lower(classifying(model), [(3, *frame)], target, max_batch, steps)
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

    A program takes pictures of one size. Where the model's processor makes them of different shapes, they are stretched
    to `image_size`, height and width, such as "480x640".
    """
    size = _image_size(image_size)
    folder, target = _checked(checkpoint, path)
    config = read_config(folder, DETECTORS, "detectors")
    masked = DETECTORS[config["model_type"]]
    steps = Steps(cancellable(progress, cancel), ["read", *LOWERING])
    steps.next()
    fields = read_processor(folder, size)
    model = load_pretrained("AutoModelForObjectDetection", folder)
    labels = _labels(folder, model.config)
    frame = tuple(fields["pad"] or fields["crop"] or fields["size"])
    module, queries = detecting(model, frame, masked)
    _lower(module, [(3, *frame), *([frame] if masked else [])], target, 1, steps)
    write_task(target, "object detection", {"queries": queries, "mask": masked, **fields, "labels": labels})
    return target


def _checked(checkpoint: PathLike, path: PathLike) -> tuple[Path, Path]:
    """The folder to read and the file to write."""
    source, target = Path(checkpoint), Path(path)
    check_target(target)
    check_source(source)
    require_executorch()
    require_transformers()
    return source if source.is_dir() else source.parent, target


def _image_size(given: object) -> tuple[int, int] | None:
    if given is None:
        return None
    written = re.fullmatch(r"(\d{1,4})x(\d{1,4})", given) if isinstance(given, str) else None
    sides = [int(side) for side in written.groups()] if written else given
    height = width = 0
    if isinstance(sides, (list, tuple)) and len(sides) == 2 and all(type(side) is int for side in sides):
        height, width = sides
    if not 1 <= min(height, width) <= max(height, width) <= LONGEST_SIDE:
        raise InputError(f'image_size is height and width, 1 to {LONGEST_SIDE}, such as "480x640", not {given!r}')
    return height, width


def _labels(folder: Path, config: Any) -> list[str]:
    """A text for each class, in their order."""
    named = {int(number): str(label) for number, label in config.id2label.items()}
    if sorted(named) != list(range(len(named))):
        raise FormatError(f"{folder / 'config.json'}: id2label names {len(named)} classes, not 0 to {len(named) - 1}")
    return [named[number] for number in range(len(named))]


def _lower(module: torch.nn.Module, inputs: list[tuple[int, ...]], target: Path, most: int, steps: Steps) -> None:
    """Inputs without their batch; the first is of pixels, a second a mask of whole numbers."""
    import torch

    count = min(2, most)  # a size of one would be taken for a constant
    kinds = (torch.float32, torch.int64)
    example = tuple(torch.ones(count, *dims, dtype=kind) for dims, kind in zip(inputs, kinds, strict=False))
    batch = {0: torch.export.Dim("pictures", min=1, max=most)} if most > 1 else None
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
