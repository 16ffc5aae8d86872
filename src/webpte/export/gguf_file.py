"""GGUF files: their keys and weights, which are dequantised when they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FormatError, UnsupportedError
from .architecture import Architecture
from .building import shapes_of
from .chat_format import end_ids
from .families import family_of_gguf
from .family import Checkpoint, Family
from .fields import MAX_SIZE, Fields
from .gguf_fields import ROTARY_TENSORS, harmless, rules
from .gguf_reader import StoredTensor, read_header
from .gguf_tokenizer import rebuild_tokenizer, special_tokens
from .places import HEAD, Weights, check_layers, places, refuse_tensors

if TYPE_CHECKING:
    import torch


def read_gguf(path: Path) -> Checkpoint:
    if find_spec("gguf") is None:
        raise UnsupportedError("reading GGUF needs the gguf package: pip install 'webpte[export]'")
    values, tensors = read_header(path)
    values |= {name: _numbers(path, tensors.pop(name)) for name in ROTARY_TENSORS if name in tensors}
    fields = Fields(str(path), values)
    architecture = values.get("general.architecture")
    family = family_of_gguf(fields.where, architecture)
    model = read_keys(family, fields, str(architecture))
    model = replace(model, tied=family.gguf_names.stored(HEAD) not in tensors)
    check_layers(fields.where, model.n_layers, len(tensors))
    wanted = places(shapes_of(family, model), model, family.gguf_names)
    refuse_tensors(fields.where, family.name, {name: stored.shape for name, stored in tensors.items()}, wanted, ())
    keys = fields.under("tokenizer.ggml.")
    ends = [keys.token_id(f"{kind}_token_id") for kind in ("eos", "eot", "eom")]  # of a text, a turn, a message
    tokenizer = rebuild_tokenizer(fields, path)
    return Checkpoint(
        family,
        model,
        Weights(wanted, lambda name: _load(path, tensors[name]), _formats(tensors)),
        tokenizer,
        fields.string("tokenizer.chat_template"),
        keys.token_id("bos_token_id"),
        end_ids(str(path), [end for end in ends if end is not None], family.end_tokens, tokenizer),
        special_tokens(fields),
    )


def read_keys(family: Family, fields: Fields, architecture: str) -> Architecture:
    """Every key read, or known to change nothing, or refused by name."""
    assert family.gguf is not None, family.name
    model = family.gguf(fields.under(f"{architecture}."))
    fields.refuse_others(lambda name: harmless(name, architecture), rules(architecture))
    model.check(fields.where)
    return model


def _formats(tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Of those that are quantised: everything but floats."""
    names = {name: tensor.type.name for name, tensor in tensors.items()}
    return {name: kind for name, kind in names.items() if kind not in ("F64", "F32", "F16", "BF16")}


def _numbers(path: Path, tensor: StoredTensor) -> list[float] | None:
    """Divisors of rotary frequencies; ones, which change nothing, are as good as none."""
    if math.prod(tensor.shape) > MAX_SIZE:
        raise FormatError(f"{path}: {tensor.name} is {list(tensor.shape)}; expected a factor for each pair of a head")
    numbers = _load(path, tensor).flatten().tolist()
    return None if all(number == 1 for number in numbers) else numbers


def _load(path: Path, tensor: StoredTensor) -> torch.Tensor:
    import gguf
    import numpy as np
    import torch

    rows = np.frombuffer(tensor.span.view(), np.uint8).reshape(-1, tensor.row_bytes)
    try:
        with np.errstate(all="ignore"):  # damaged scales are NaN or infinite, which whoever uses the weight looks for
            dense = gguf.quants.dequantize(rows, tensor.type)
    except NotImplementedError as error:
        stored = f"{path}: {tensor.name} is stored as {tensor.type.name}"
        raise UnsupportedError(f"{stored}: {error}", [tensor.name]) from error
    return torch.from_numpy(dense.copy()).reshape(tensor.shape).float()
