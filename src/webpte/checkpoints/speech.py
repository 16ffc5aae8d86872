"""Read checkpoints of speech models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..container import Span
from ..errors import FormatError, UnsupportedError
from ..json_files import read_json_object
from ..typing import Array
from .config import Fields
from .hugging_face import read_tensors
from .moonshine import read_moonshine_config
from .recipe import HEAD
from .speech_model import SpeechConfig, SpeechModel
from .weights import CheckpointWeights, StoredWeight, WeightSource, check_tensors
from .whisper import read_whisper_config

_ROW_MULTIPLE = 4  # of a layer that is quantized: see recipe.fits
_READERS = {"whisper": read_whisper_config, "moonshine": read_moonshine_config}


@dataclass(frozen=True)
class SpeechCheckpoint:
    """A checkpoint of a speech model."""

    model: SpeechModel
    weights: CheckpointWeights

    def with_padded_head(self) -> SpeechCheckpoint:
        """Return the checkpoint with a head that can be quantized: rows of zeros follow those of the vocabulary."""
        name, rows = f"{HEAD}.weight", -(-self.model.vocabulary // _ROW_MULTIPLE) * _ROW_MULTIPLE
        stored = self.weights.sources[name].stored_name
        head = _PaddedRows(self.weights.tensors[stored], rows)
        sources = {**self.weights.sources, name: WeightSource(name, head.shape)}
        return replace(self, weights=CheckpointWeights(sources, {**self.weights.tensors, name: head}))


@dataclass(frozen=True)
class _PaddedRows:
    """A stored matrix with rows of zeros after its own."""

    stored: StoredWeight
    rows: int
    first: int = 0  # of the stored rows; those after them are zeros

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.stored.shape[1:])

    @property
    def span(self) -> Span:
        return self.stored.span

    def read(self) -> Array:
        last = min(self.first + self.rows, self.stored.shape[0])
        own = self.stored.part(self.first, last).read()
        return np.concatenate([own, np.zeros((self.rows - len(own), *own.shape[1:]), own.dtype)])

    def part(self, start: int, stop: int) -> _PaddedRows:
        return _PaddedRows(self.stored, stop - start, self.first + start)


def read_speech(folder: Path) -> SpeechCheckpoint:
    """Read the checkpoint in a folder."""
    (model, _, names), _ = read_speech_config(folder)
    tensors = read_tensors(folder)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    sources = {name: WeightSource(names.get(name, name), shape) for name, shape in model.shapes().items()}
    check_tensors(str(folder), model.name, shapes, sources, {"proj_out.weight"} & {*tensors})
    return SpeechCheckpoint(model, CheckpointWeights(sources, tensors))


def read_speech_config(folder: Path) -> tuple[SpeechConfig, str]:
    """Read and check everything but the weights. Return it, and the text of tokenizer.json."""
    fields = Fields(str(folder / "config.json"), read_json_object(folder / "config.json"))
    kind = fields.string("model_type")
    if kind not in _READERS:
        raise UnsupportedError(
            items=["model_type"],
            argument=f"{folder / 'config.json'}: model_type",
            expected=f"{' or '.join(_READERS)} for speech",
            got=kind,
            code="model_type",
        )
    config = _READERS[kind](folder, fields)
    for heads in (config.model.encoder_heads, config.model.decoder_heads):
        if config.model.dim % heads:
            raise FormatError(
                argument=f"{fields.where}: the hidden size",
                expected=f"a multiple of {heads} heads",
                got=config.model.dim,
                code="invalid_field",
            )
    return config, _tokenizer(folder)


def _tokenizer(folder: Path) -> str:
    try:
        return (folder / "tokenizer.json").read_text(encoding="utf-8")
    except OSError as error:
        raise FormatError(
            f"{folder}: tokenizer.json cannot be read: {error.strerror}",
            code="tokenizer",
            hint="Write it with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
        ) from error
