"""Read checkpoints (GGUF, or safetensors with config.json) as NumPy arrays, one mapped tensor at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import FormatError, UnsupportedError
from ..export import gguf_file, hugging_face
from ..export.architecture import Architecture
from ..export.checkpoint import check_source
from ..export.config import MAX_DIM_SIZE, Fields
from ..export.families import family_of_gguf
from ..export.family import Checkpoint, end_ids
from ..export.gguf_reader import StoredTensor, read_header
from ..export.gguf_tokenizer import rebuild_tokenizer, special_tokens
from ..export.weights import (
    EMBEDDING,
    HEAD,
    CheckpointWeights,
    WeightSource,
    check_layers,
    check_tensors,
    map_weights,
)
from .ggml import GROUP, TYPES, Affine, TensorType
from .quantize import Grouped
from .safetensors import read_safetensors
from .shapes import parameter_shapes

Array = np.ndarray[Any, Any]
_FREQUENCY_TOLERANCE = 4e-3  # of stored rotary frequencies, which may be rounded to half precision


class StoredWeight(Protocol):
    """A tensor of a checkpoint."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self) -> Array:
        """Return the tensor as f32."""


@dataclass(frozen=True)
class BlockTensor:
    """A tensor of a GGUF file."""

    stored: StoredTensor
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    def read(self) -> Array:
        with np.errstate(all="ignore"):  # damaged scales are NaN or infinite; users of the weight check for them
            return self.type.decode(self._blocks()).reshape(self.shape)

    def affine(self) -> Affine | None:
        """Return the codes, steps and offsets of a matrix in groups of 32: (N, G, 32), (N, G), (N, G)."""
        if self.type.affine is None:
            return None
        with np.errstate(all="ignore"):
            codes, steps, offsets = self.type.affine(self._blocks())
        rows = self.shape[0]
        return Affine(codes.reshape(rows, -1, GROUP), steps.reshape(rows, -1), offsets.reshape(rows, -1))

    def _blocks(self) -> Array:
        return np.frombuffer(self.stored.span.view(), np.uint8).reshape(-1, self.type.bytes)


@dataclass(frozen=True)
class ArrayWeights:
    """The parameters of a decoder, read one at a time by name."""

    sources: Mapping[str, WeightSource]
    tensors: Mapping[str, StoredWeight]  # by the checkpoint's name

    def read(self, name: str) -> Array:
        """Return a parameter as f32."""
        source = self.sources[name]
        array = self.tensors[source.stored_name].read()
        if source.is_conv:
            return np.ascontiguousarray(array.transpose(2, 1, 0))
        array = array[row_order(source)]
        if (source.factor, source.offset) != (1.0, 0.0):
            array = array * np.float32(source.factor) + np.float32(source.offset)
        return np.ascontiguousarray(array)

    def stored_type(self, name: str) -> TensorType | None:
        """Return the type of a parameter that is quantized in the checkpoint."""
        tensor = self.tensors[self.sources[name].stored_name]
        return tensor.type if isinstance(tensor, BlockTensor) and tensor.type.bits < 16 else None

    def formats(self) -> dict[str, str]:
        """Return the format of each parameter that is quantized in the checkpoint, by name."""
        types = ((name, self.stored_type(name)) for name in self.sources)
        return {name: kind.name for name, kind in types if kind is not None}

    def grouped(self, name: str) -> Grouped | None:
        """Return a parameter as 4-bit groups of 32 with its exact values, or None if its format has other values."""
        affine = self.affine(name)
        if affine is None or affine[1].any():
            return None
        return affine[0]

    def affine(self, name: str) -> tuple[Grouped, Array] | None:
        """Return a parameter as 4-bit groups of 32 and an offset (N, G) for each group; None if it has more bits."""
        source, kind = self.sources[name], self.stored_type(name)
        tensor = self.tensors[source.stored_name]
        if kind is None or kind.bits != 4 or source.is_conv or source.offset or not isinstance(tensor, BlockTensor):
            return None
        stored = tensor.affine()
        if stored is None:
            return None
        order, factor = row_order(source), np.float32(source.factor)
        codes = (stored.codes[order] - np.uint8(8)).view(np.int8)
        steps = stored.steps[order]
        offsets = (stored.offsets[order] + steps * np.float32(8)) * factor
        return Grouped(codes.reshape(len(codes), -1), steps * factor), offsets


@dataclass(frozen=True)
class ArrayCheckpoint(Checkpoint):
    """A checkpoint whose parameters are NumPy arrays. Of `weights`, only sources and formats are used."""

    arrays: ArrayWeights = ArrayWeights({}, {})


def row_order(source: WeightSource) -> Array | slice:
    """Return, for each row of a parameter, its row in the stored tensor."""
    first = source.first_row if source.stored_rows is not None else 0
    if not source.heads:
        return slice(first, first + source.shape[0])
    size, half = source.shape[0] // source.heads, source.rotary_width // 2
    pairs = np.stack([np.arange(half), np.arange(half) + half], axis=1).reshape(-1)
    head = np.concatenate([pairs, np.arange(source.rotary_width, size)])  # (size,)
    order: Array = (np.arange(source.heads)[:, None] * size + head).reshape(-1) + first
    return order


def read_checkpoint(path: Path) -> ArrayCheckpoint:
    """Read a .gguf file, or a folder (or a file in it) with config.json and safetensors."""
    check_source(path)
    if path.suffix == ".gguf":
        return _read_gguf(path)
    return _read_folder(path if path.is_dir() else path.parent)


def _checkpoint(
    checkpoint: Callable[[CheckpointWeights], Checkpoint],
    sources: Mapping[str, WeightSource],
    tensors: Mapping[str, StoredWeight],
) -> ArrayCheckpoint:
    arrays = ArrayWeights(sources, tensors)

    def load(name: str) -> Any:
        return tensors[name].read()

    return ArrayCheckpoint(**vars(checkpoint(CheckpointWeights(sources, load, arrays.formats()))), arrays=arrays)


# ---------------------------------------------------------------- GGUF


def _read_gguf(path: Path) -> ArrayCheckpoint:
    values, stored = read_header(path)
    tensors = {name: BlockTensor(tensor, _type(path, tensor)) for name, tensor in stored.items()}
    for name in gguf_file.ROTARY_TENSORS:
        if name in tensors:
            values[name] = _numbers(path, name, tensors.pop(name))
    fields = Fields(str(path), values)
    architecture = values.get("general.architecture")
    family = family_of_gguf(fields.where, architecture)
    model = gguf_file.read_keys(family, fields, str(architecture))
    model = replace(model, tied=family.gguf_names.stored_name(HEAD) not in tensors)
    check_layers(fields.where, model.n_layers, len(tensors))
    sources = map_weights(parameter_shapes(model), model, family.gguf_names)
    check_tensors(fields.where, family.name, {name: tensor.shape for name, tensor in tensors.items()}, sources, ())
    keys = fields.with_prefix("tokenizer.ggml.")
    ends = [keys.token_id(f"{kind}_token_id") for kind in ("eos", "eot", "eom")]  # end of text, of turn, of message
    tokenizer = rebuild_tokenizer(fields, path)

    def checkpoint(weights: CheckpointWeights) -> Checkpoint:
        return Checkpoint(
            family,
            model,
            weights,
            tokenizer,
            fields.string("tokenizer.chat_template"),
            keys.token_id("bos_token_id"),
            end_ids(str(path), [end for end in ends if end is not None], family.end_tokens, tokenizer),
            special_tokens(fields),
        )

    return _checkpoint(checkpoint, sources, tensors)


def _type(path: Path, tensor: StoredTensor) -> TensorType:
    kind = TYPES.get(int(tensor.type))
    if kind is None:
        raise UnsupportedError(
            items=[tensor.name],
            argument=f"{path}: {tensor.name}",
            expected=f"one of the formats {', '.join(kind.name for kind in TYPES.values())}",
            got=tensor.type.name,
            code="tensor_type",
            hint="Use another quantization of the model, such as Q4_K_M or Q8_0.",
        )
    return kind


def _numbers(path: Path, name: str, tensor: BlockTensor) -> list[float] | None:
    """Return divisors of rotary frequencies, or None if all are 1."""
    if math.prod(tensor.shape) > MAX_DIM_SIZE:
        raise FormatError(
            argument=f"{path}: {name}",
            expected="a factor for each pair of a head",
            got=f"the shape {list(tensor.shape)}",
            code="tensor_shape",
        )
    numbers = tensor.read().flatten().tolist()
    return None if all(number == 1 for number in numbers) else numbers


# ---------------------------------------------------------------- safetensors


def _read_folder(folder: Path) -> ArrayCheckpoint:
    family, model, fields = hugging_face.validate_folder(folder)
    tensors = _find_tensors(folder, model)
    check_layers(str(folder), model.n_layers, len(tensors))
    sources = map_weights(parameter_shapes(model), model, family.names)
    head = family.names.stored_name(HEAD)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    check_tensors(str(folder), family.name, shapes, sources, {head} & {*tensors})
    embedding = sources[EMBEDDING].stored_name
    if model.tied and head in tensors and not np.array_equal(tensors[head].read(), tensors[embedding].read()):
        raise FormatError(
            f"{folder}: tie_word_embeddings is true, but {head} differs from the embedding", code="contradiction"
        )
    path = folder / "generation_config.json"
    generation = hugging_face.read_json(path) if path.exists() else {}
    ends = [end for end in (fields.get("eos_token_id"), generation.get("eos_token_id")) if end is not None]
    tokenizer = hugging_face._read_text(folder / "tokenizer.json")

    def checkpoint(weights: CheckpointWeights) -> Checkpoint:
        return Checkpoint(
            family,
            model,
            weights,
            tokenizer,
            hugging_face._chat_template(folder),
            fields.token_id("bos_token_id"),
            end_ids(str(folder), ends, family.end_tokens, tokenizer),
            hugging_face._special_tokens(folder),
        )

    return _checkpoint(checkpoint, sources, tensors)


def _find_tensors(folder: Path, model: Architecture) -> dict[str, StoredWeight]:
    """Return every tensor by name, except rotary frequencies that are computed."""
    tensors: dict[str, StoredWeight] = {}
    for path in hugging_face._weight_files(folder):
        for name, tensor in read_safetensors(path).items():
            if name.endswith("rotary_emb.inv_freq") and _is_plain(tensor.read(), model):
                continue
            if name in tensors:
                raise FormatError(f"{name} is in two files, one of them {path}", code="duplicate_tensor")
            tensors[name] = tensor
    if not tensors:
        raise FormatError(f"{folder} has no safetensors with weights", code="no_safetensors")
    return tensors


def _is_plain(frequencies: Array, model: Architecture) -> bool:
    """Return whether stored rotary frequencies equal the computed ones, up to rounding to half precision."""
    for rope in model.ropes.values():
        plain = rope.theta ** -(np.arange(0, rope.width, 2) / rope.width)
        same = frequencies.shape == plain.shape and np.allclose(
            frequencies, plain, rtol=_FREQUENCY_TOLERANCE, atol=1e-7
        )
        if rope.divisors is None and same:
            return True
    return False
