"""GGUF files: their keys and weights, which are dequantised when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from .architecture import Architecture
from .building import shapes_of
from .chat_format import end_ids
from .families import family_of_gguf
from .family import Checkpoint, Family
from .fields import Fields
from .gguf_fields import ROTARY_TENSORS, harmless, rules
from .gguf_tokenizer import rebuild_tokenizer, special_tokens
from .places import HEAD, Weights, places, refuse_tensors


def read_gguf(path: Path) -> Checkpoint:
    try:
        import gguf
    except ImportError as error:
        raise UnsupportedError("reading GGUF needs the gguf package: pip install 'webpte[export]'") from error
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} is not a GGUF file: {error}") from error
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    values = {name: field.contents() for name, field in reader.fields.items()}
    values |= {name: _numbers(tensors.pop(name)) for name in ROTARY_TENSORS if name in tensors}
    fields = Fields(str(path), values)
    architecture = values.get("general.architecture")
    family = family_of_gguf(fields.where, architecture)
    model = read_keys(family, fields, str(architecture))
    model = replace(model, tied=family.gguf_names.stored(HEAD) not in tensors)
    wanted = places(shapes_of(family, model), model, family.gguf_names)
    refuse_tensors(fields.where, family.name, {name: _shape(t) for name, t in tensors.items()}, wanted, ())
    ends = [values.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]  # of a text, turn, message
    tokenizer = rebuild_tokenizer(fields, path)
    return Checkpoint(
        family,
        model,
        Weights(wanted, lambda name: _load(path, tensors[name]), _formats(tensors)),
        tokenizer,
        values.get("tokenizer.chat_template"),
        values.get("tokenizer.ggml.bos_token_id"),
        end_ids(str(path), [end for end in ends if end is not None], family.end_tokens, tokenizer),
        special_tokens(values),
    )


def read_keys(family: Family, fields: Fields, architecture: str) -> Architecture:
    """Every key read, or known to change nothing, or refused by name."""
    assert family.gguf is not None, family.name
    model = family.gguf(fields.under(f"{architecture}."))
    fields.refuse_others(lambda name: harmless(name, architecture), rules(architecture))
    model.check(fields.where)
    return model


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in reversed(tensor.shape))  # GGUF counts the innermost dim first


def _formats(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Of those that are quantised: everything but floats."""
    names = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
    return {name: kind for name, kind in names.items() if kind not in ("F64", "F32", "F16", "BF16")}


def _numbers(tensor: Any) -> list[float] | None:
    """Divisors of rotary frequencies; ones, which change nothing, are as good as none."""
    numbers = [float(number) for number in tensor.data.reshape(-1)]
    return None if all(number == 1 for number in numbers) else numbers


def _load(path: Path, tensor: Any) -> Any:
    import gguf
    import torch

    try:
        dense = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except (NotImplementedError, ValueError) as error:
        stored = f"{path}: {tensor.name} is stored as {tensor.tensor_type.name}"
        raise UnsupportedError(f"{stored}: {error}", [tensor.name]) from error
    return torch.from_numpy(dense.copy()).reshape(_shape(tensor)).float()
