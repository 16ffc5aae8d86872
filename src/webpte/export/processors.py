"""How a model's pictures are prepared, from its preprocessor_config.json, in the words of NAME.task.json.

`transformers` reads the file, with the defaults of each processor and the spellings of older versions; what it then
holds must be understood here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError, UnsupportedError
from .kernel_noise import quiet

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
# About annotations and formats of arrays: nothing of the pictures that are read here. All are made RGB.
_HARMLESS = {"image_processor_type", "processor_class", "format", "do_convert_annotations", "do_convert_rgb",
             "do_reduce_labels", "data_format", "input_data_format", "default_to_square", "return_tensors", "device",
             "disable_grouping"}  # fmt: skip
_READ = {"do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize",
         "image_mean", "image_std", "do_pad", "pad_size", "crop_pct"}  # fmt: skip
CONVNEXT_WHOLE = 384  # pixels from which ConvNeXT's processor does not crop


def read_processor(folder: Path, image_size: tuple[int, int] | None = None) -> dict[str, Any]:
    """Fields for `write_task`. With `image_size` every picture is stretched to that height and width."""
    found = _processor(folder)
    where = folder / "preprocessor_config.json"
    kind = str(found.get("image_processor_type"))
    if kind not in PROCESSORS:
        raise UnsupportedError(f"{where}: image_processor_type is {kind}; understood are {', '.join(PROCESSORS)}",
                               ["image_processor_type"])  # fmt: skip
    if strange := [n for n, value in found.items() if value is not None and n not in _READ | _HARMLESS]:
        raise UnsupportedError(f"{where}: {', '.join(strange)} may change pictures, and is unknown", strange)
    size = {"height": image_size[0], "width": image_size[1]} if image_size else dict(found.get("size") or {})
    resize = _resize(where, kind, found, size)
    crop = _pair(where, "crop_size", found["crop_size"]) if found.get("do_center_crop") else None
    pad = _pair(where, "pad_size", found["pad_size"]) if found.get("do_pad") and found.get("pad_size") else None
    fields = {
        "resample": FILTERS[int(found.get("resample", 2))],
        "crop": crop,
        "scale": float(found["rescale_factor"]) if found.get("do_rescale") else None,
        "mean": _colours(where, "image_mean", found) if found.get("do_normalize") else None,
        "std": _colours(where, "image_std", found) if found.get("do_normalize") else None,
        "pad": None if image_size else pad,
        **resize,
    }
    if fields["resize"] == "none" or (fields["resize"] != "exact" and not (fields["crop"] or fields["pad"])):
        raise InputError(
            f"{where}: pictures of different shapes stay so, with {size or 'no resize'}, and a program takes one "
            "shape: pass image_size, such as --image-size 480x640, to which all are stretched"
        )
    return fields


def _processor(folder: Path) -> dict[str, Any]:
    if not (folder / "preprocessor_config.json").exists():
        raise FormatError(f"{folder} has no preprocessor_config.json, which says how to prepare pictures")
    with quiet():
        from transformers import AutoImageProcessor

        try:
            found = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True).to_dict()
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise FormatError(f"{folder / 'preprocessor_config.json'} cannot be read: {error}") from error
    return dict(found)


def _resize(where: Path, kind: str, found: dict[str, Any], size: dict[str, Any]) -> dict[str, Any]:
    """`resize` and `size`, and `crop` where a resize crops."""
    if not found.get("do_resize"):
        return {"resize": "none", "size": [1, 1]}
    match {name: int(side) for name, side in size.items() if side}:
        case {"height": height, "width": width, **rest} if not rest:
            return {"resize": "exact", "size": [height, width]}
        case {"shortest_edge": side, **rest} if kind == "ConvNextImageProcessor" and not rest:
            if side >= CONVNEXT_WHOLE:
                return {"resize": "exact", "size": [side, side]}
            larger = int(side / float(found["crop_pct"]))
            return {"resize": "shortest", "size": [larger, larger], "crop": [side, side]}
        case {"shortest_edge": side, **rest} if not rest:
            return {"resize": "shortest", "size": [side, side]}
        # YOLOS cuts both sides to multiples of 16, which nobody pads afterwards.
        case {"shortest_edge": side, "longest_edge": longest, **rest} if kind != "YolosImageProcessor" and not rest:
            return {"resize": "fit", "size": [side, longest]}
        case {"shortest_edge": _, "longest_edge": _}:
            return {"resize": "none", "size": [1, 1]}
        case other:
            raise UnsupportedError(f"{where}: size is {other}, which is not understood", ["size"])


def _pair(where: Path, name: str, size: Any) -> list[int]:
    sides = [size.get(side) for side in ("height", "width")] if isinstance(size, dict) else [None]
    if not all(isinstance(side, int) and side > 0 for side in sides):
        raise UnsupportedError(f"{where}: {name} is {size}; height and width are wanted", [name])
    return [int(side) for side in sides if side]


def _colours(where: Path, name: str, found: dict[str, Any]) -> list[float]:
    value = found.get(name)
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise UnsupportedError(f"{where}: {name} is {value}; a number for each of three colours is wanted", [name])
    return [float(number) for number in value]
