"""Read the image encoder of a GGUF checkpoint: a file of its own beside the model, with `mmproj` in its name."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from .config import FieldRule, Fields
from .gguf_reader import Header, StoredTensor, read_header
from .towers import gguf_tower
from .vision_tower import Vision, VisionTower, tower_sources
from .weights import CheckpointWeights, check_layers, check_tensors

logger = logging.getLogger(__name__)

_ARCHITECTURE = "clip"  # of all these files, whatever their encoder
_PATCHES = "vision.patches.weight"
_HINT = "Move it to another folder to read the language model alone."
_RULES = {
    "clip.has_vision_encoder": FieldRule((True,), "the file has no image encoder"),
    "clip.has_audio_encoder": FieldRule((False,), "the file has an audio encoder"),
    "clip.has_text_encoder": FieldRule((False,), "the file has a text encoder"),
    "clip.has_llava_projector": FieldRule((False,), "the encoder has another projector"),
    "clip.use_silu": FieldRule((False,), "an activation other than gelu"),
    "split.count": FieldRule((0, 1), "the encoder is in several files; merge them with gguf-split"),
    "split.no": FieldRule((0,), "the encoder is in several files; merge them with gguf-split"),
}
_WITHOUT_EFFECT = ("general.", "quantize.", "mradermacher.", "split.tensors.count")


def is_encoder_file(file: Path) -> bool:
    """Return whether a GGUF file has an encoder of images or sound, by its name."""
    return "mmproj" in file.name.lower()


def encoder_files(model: Path) -> list[Path]:
    """Return the files beside a GGUF model that have encoders of images or sound."""
    if is_encoder_file(model):
        return []
    return sorted(file for file in model.parent.glob("*.gguf") if is_encoder_file(file))


def read_vision_beside(model: Path, dim: int, tokens: Collection[str]) -> Vision | None:
    """Return the encoder beside a GGUF model, or None. It has the width of the model, whose tokens have its image."""
    files = encoder_files(model)
    headers = {file: read_header(file) for file in files}
    fitting = {file: header for file, header in headers.items() if _fits(header, dim, tokens)}
    if len(fitting) > 1:
        raise InputError(
            argument=str(model),
            expected="one file with an image encoder of the model beside it",
            got=", ".join(file.name for file in fitting),
            code="ambiguous_file",
            hint="Move the others to another folder.",
        )
    left_out = [
        f"{file.name} ({header.values.get('clip.projector_type', 'no projector')})"
        for file, header in headers.items()
        if file not in fitting
    ]
    if left_out:
        logger.warning("%s: left out, as encoders of other models or other kinds: %s", model, ", ".join(left_out))
    return next((_read(file, header) for file, header in fitting.items()), None)


def _fits(header: Header, dim: int, tokens: Collection[str]) -> bool:
    """Return whether an encoder may be that of a language model, and is of a kind that can be read."""
    values, tower = header.values, gguf_tower(header.values.get("clip.projector_type"))
    widths = [values.get(f"clip.{kind}.projection_dim") for kind in ("vision", "audio")]
    known = values.get("general.architecture") == _ARCHITECTURE and dim in widths
    return known and tower is not None and tower.image_token in tokens


def _read(path: Path, header: Header) -> Vision:
    fields, declared = Fields(str(path), header.values), gguf_tower(header.values["clip.projector_type"])
    assert declared is not None
    keys = fields.with_prefix("clip.")
    keys.get("projector_type")
    if not keys.boolean("use_gelu"):  # without it, readers of the format take another activation
        raise keys.invalid("use_gelu", keys.get("use_gelu"), "true")
    shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
    tower, processor = declared.config(fields, shapes), declared.processor(fields)
    fields.refuse_unread(lambda name: name not in _RULES and name.startswith(_WITHOUT_EFFECT), _RULES, _HINT)
    tower.check(fields.where)
    tensors = _renamed(header.tensors, tower)
    check_layers(fields.where, tower.n_layers, len(tensors))
    sources = tower_sources(declared.names, tower.shapes(), declared.conversions)
    if tower.image_side is None:
        sources[_PATCHES] = replace(sources[_PATCHES], patch_side=tower.patch_side)
    check_tensors(fields.where, "image encoder", {name: tensor.shape for name, tensor in tensors.items()}, sources, ())
    return Vision(tower, CheckpointWeights(sources, tensors), processor)


def _renamed(tensors: Mapping[str, StoredTensor], tower: VisionTower) -> dict[str, StoredTensor]:
    """Return the tensors by their names since May 2025: before, the layers of a feed-forward had each other's."""
    up = tensors.get("v.blk.0.ffn_up.weight")
    if up is None or tower.dim == tower.hidden_dim or up.shape != (tower.dim, tower.hidden_dim):
        return dict(tensors)
    other = {"up": "down", "down": "up"}
    return {re.sub(r"(?<=\.ffn_)(up|down)(?=\.)", lambda m: other[m[1]], name): t for name, t in tensors.items()}
